//! Static files from a folder: whole or a range of them, with what a client needs to ask only once. Nothing
//! outside of the folder is ever opened, however a path is spelled and wherever a link leads.

use std::fs::{File, Metadata};
use std::future::Future as _;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    LOCATION, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use httpdate::HttpDate;
use tokio::task::JoinHandle;

use crate::body::ResponseBody;
use crate::problem::Problem;

/// How much of a file is read at a time.
const PART_BYTES: usize = 64 << 10;
/// What is served where a path names a folder.
const INDEX: &str = "index.html";

/// A folder whose files are served.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    /// Without links in it.
    root: PathBuf,
}

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let root = path.canonicalize()?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root })
    }

    /// The answer to a request for what is at `path`, which is in its normal form, without the first
    /// `prefix_length` bytes, which are the route's own.
    pub(crate) async fn answer(
        &self,
        request: (&Method, &Uri, &HeaderMap),
        path: &[u8],
        prefix_length: usize,
    ) -> Result<Response<ResponseBody>, Problem> {
        let (method, uri, headers) = request;
        if ![Method::GET, Method::HEAD].contains(method) {
            return Err(Problem::FileMethod);
        }
        let below = path.get(prefix_length..).unwrap_or_default();
        let relative = relative(below).ok_or(Problem::NoRoute)?;
        let root = self.root.clone();
        let opened = tokio::task::spawn_blocking(move || open(&root, &relative)).await;
        let found = opened.ok().and_then(Result::ok).ok_or(Problem::NoRoute)?;
        let names_folder = uri.path().ends_with('/');
        if !found.is_index && names_folder {
            // Links in a page would be read against a folder that there is not.
            return Err(Problem::NoRoute);
        }
        if found.is_index && !names_folder {
            return moved(path, uri.query()).ok_or(Problem::NoRoute);
        }
        Ok(found.response(method, headers))
    }
}

/// Sends a client that asks for a folder to the same with a slash at the end: without it, links in the index
/// would be read against the folder above. The path is in its normal form, so that no spelling of it is
/// another host.
fn moved(path: &[u8], query: Option<&str>) -> Option<Response<ResponseBody>> {
    let mut location = Vec::with_capacity(path.len() + 1);
    for byte in path {
        match byte {
            b'/' | b'%' | b'-' | b'.' | b'_' | b'~' => location.push(*byte),
            byte if byte.is_ascii_alphanumeric() => location.push(*byte),
            byte => location.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    if !location.ends_with(b"/") {
        location.push(b'/');
    }
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query.as_bytes());
    }
    let mut response = Response::new(ResponseBody::full(Bytes::new()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(LOCATION, HeaderValue::from_bytes(&location).ok()?);
    Some(response)
}

/// The path below the folder: plain names only. Names that begin with a dot are nobody's business.
fn relative(path: &[u8]) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for segment in path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
        let name = String::from_utf8(decoded(segment)?).ok()?;
        if name.starts_with('.') || name.contains(['/', '\\', '\0']) {
            return None;
        }
        relative.push(name);
    }
    Some(relative)
}

/// The segment with `%41` undone; `None` where a code is none.
fn decoded(segment: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(segment.len());
    let mut rest = segment;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            name.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        name.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    Some(name)
}

/// Opens a file, or the index of a folder. A link may lead to another place in the folder, and no further.
fn open(root: &Path, relative: &Path) -> io::Result<Found> {
    let mut path = root.join(relative).canonicalize()?;
    let is_index = path.is_dir();
    if is_index {
        path = path.join(INDEX).canonicalize()?;
    }
    // Looked at before it is opened: to open a pipe is to wait for who writes to it.
    if !path.starts_with(root) || !path.metadata()?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let file = File::open(&path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(Found { file, metadata, kind: kind(&path), is_index })
}

struct Found {
    file: File,
    metadata: Metadata,
    kind: &'static str,
    /// Whether a folder was asked for.
    is_index: bool,
}

impl Found {
    fn response(self, method: &Method, asked: &HeaderMap) -> Response<ResponseBody> {
        let length = self.metadata.len();
        let version = Version::of(&self.metadata);
        let mut response = Response::new(ResponseBody::full(Bytes::new()));
        let headers = response.headers_mut();
        headers.insert(ETAG, version.tag.clone());
        headers.insert(LAST_MODIFIED, version.modified.clone());
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(status) = version.answers(asked) {
            *response.status_mut() = status;
            return response;
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let wanted =
            if method == Method::GET { wanted(asked, &version, length) } else { Wanted::Whole };
        let range = match wanted {
            Wanted::Whole => 0..length,
            Wanted::Part(range) => {
                let shown = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                headers.insert(CONTENT_RANGE, value(&shown));
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                range
            }
            Wanted::Nothing => {
                headers.insert(CONTENT_RANGE, value(&format!("bytes */{length}")));
                *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                return response;
            }
        };
        let left = range.end - range.start;
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(left));
        if method == Method::GET && left > 0 {
            *response.body_mut() = ResponseBody::file(Reading::new(self.file, range));
        }
        response
    }
}

/// Letters, digits and marks, which are always a value.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// By what a client knows a file again.
#[derive(Clone, Debug)]
struct Version {
    tag: HeaderValue,
    /// In whole seconds, which is all that dates in headers have.
    modified_at: HttpDate,
    modified: HeaderValue,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok();
        let since =
            modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let tag = value(&format!("\"{:x}-{:x}\"", since.as_micros(), metadata.len()));
        let modified_at = HttpDate::from(UNIX_EPOCH + Duration::from_secs(since.as_secs()));
        let modified = value(&modified_at.to_string());
        Self { tag, modified_at, modified }
    }

    /// The status without a body that conditions of a request ask for, in the order of RFC 9110, section
    /// 13.2.2; `None` where they let it pass.
    fn answers(&self, asked: &HeaderMap) -> Option<StatusCode> {
        let is_as_it_was = match self.is_among(asked, &IF_MATCH, false) {
            Some(is_among) => is_among,
            None => date(asked, &IF_UNMODIFIED_SINCE).is_none_or(|date| self.modified_at <= date),
        };
        if !is_as_it_was {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        let is_known = match self.is_among(asked, &IF_NONE_MATCH, true) {
            Some(is_among) => is_among,
            None => date(asked, &IF_MODIFIED_SINCE).is_some_and(|date| self.modified_at <= date),
        };
        is_known.then_some(StatusCode::NOT_MODIFIED)
    }

    /// Whether a list of tags has this one; `None` where there is no list.
    fn is_among(&self, asked: &HeaderMap, name: &HeaderName, takes_weak: bool) -> Option<bool> {
        let mut lines = asked.get_all(name).iter().peekable();
        lines.peek()?;
        let mut tags = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        Some(tags.any(|tag| {
            let tag = tag.trim_ascii();
            let tag = tag.strip_prefix(b"W/").filter(|_| takes_weak).unwrap_or(tag);
            tag == b"*" || tag == self.tag.as_bytes()
        }))
    }
}

/// A date; what is none says nothing.
fn date(asked: &HeaderMap, name: &HeaderName) -> Option<HttpDate> {
    asked.get(name)?.to_str().ok()?.parse().ok()
}

/// What of a file is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part(Range<u64>),
    /// A range that lies outside.
    Nothing,
}

fn wanted(asked: &HeaderMap, version: &Version, length: u64) -> Wanted {
    let is_same = |known: &HeaderValue| known == version.tag || known == version.modified;
    let is_same = asked.get(IF_RANGE).is_none_or(is_same);
    let range = asked.get(RANGE).filter(|_| is_same).and_then(|range| range.to_str().ok());
    // Several ranges, and what is no range, are answered with all of it, as RFC 9110 allows.
    let Some((first, last)) = range
        .and_then(|range| range.split_once('='))
        .filter(|(unit, range)| unit.eq_ignore_ascii_case("bytes") && !range.contains(','))
        .and_then(|(_, range)| range.split_once('-'))
    else {
        return Wanted::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    // A sign, which numbers may have elsewhere, has no place here.
    let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = |text: &str| Some(text).filter(is_number)?.parse::<u64>().ok();
    let range = match (first.is_empty(), last.is_empty()) {
        (true, _) => number(last).map(|count| length.saturating_sub(count)..length),
        (false, true) => number(first).map(|first| first..length),
        (false, false) => number(first)
            .zip(number(last))
            .filter(|(first, last)| first <= last)
            .map(|(first, last)| first..last.saturating_add(1).min(length)),
    };
    match range {
        None => Wanted::Whole,
        Some(range) if range.start < range.end => Wanted::Part(range),
        Some(_) => Wanted::Nothing,
    }
}

/// A file on its way, read part by part where waiting for a disk holds nobody up.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) left: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle(File, Option<u64>),
    Busy(JoinHandle<io::Result<(File, Vec<u8>)>>),
    Ended,
}

impl Reading {
    fn new(file: File, range: Range<u64>) -> Self {
        Self { left: range.end - range.start, state: State::Idle(file, Some(range.start)) }
    }

    /// The next part; `None` at the end. A file that was cut short meanwhile is an error.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::Idle(_, _) if self.left == 0 => return Poll::Ready(None),
                State::Idle(file, from) => {
                    let length = self.left.min(PART_BYTES as u64) as usize;
                    let reading = move || part(file, from, length);
                    self.state = State::Busy(tokio::task::spawn_blocking(reading));
                }
                State::Busy(mut reading) => {
                    let Poll::Ready(read) = Pin::new(&mut reading).poll(context) else {
                        self.state = State::Busy(reading);
                        return Poll::Pending;
                    };
                    let (file, bytes) =
                        match read.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())) {
                            Ok(read) => read,
                            Err(error) => return Poll::Ready(Some(Err(error))),
                        };
                    self.left -= bytes.len() as u64;
                    self.state = State::Idle(file, None);
                    return Poll::Ready(Some(Ok(Bytes::from(bytes))));
                }
            }
        }
    }
}

fn part(mut file: File, from: Option<u64>, length: usize) -> io::Result<(File, Vec<u8>)> {
    if let Some(from) = from {
        file.seek(SeekFrom::Start(from))?;
    }
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes)?;
    Ok((file, bytes))
}

/// The media type, by the end of a name.
fn kind(path: &Path) -> &'static str {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    match end.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "xml" => "application/xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_folder() {
        for path in [
            "/../etc/passwd",
            "/%2e%2e/etc/passwd",
            "/a/%2E./b",
            "/..%2fetc",
            "/%5c..%5cb",
            "/a%00.html",
            "/.git/config",
            "/%zz",
            "/%f",
            "/%ff",
        ] {
            assert_eq!(relative(path.as_bytes()), None, "{path}");
        }
        assert_eq!(relative(b"//a%20b//c.txt/"), Some(PathBuf::from("a b/c.txt")));
        assert_eq!(relative(b"/"), Some(PathBuf::new()));
    }

    fn version() -> Version {
        let modified_at = HttpDate::from(UNIX_EPOCH + Duration::from_secs(784_111_777));
        let modified = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
        Version { tag: HeaderValue::from_static("\"t\""), modified_at, modified }
    }

    fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn ranges_are_what_rfc_9110_says() {
        let wants = |text| wanted(&headers(&[(RANGE, text)]), &version(), 100);
        assert_eq!(wants("bytes=0-9"), Wanted::Part(0..10));
        assert_eq!(wants("Bytes=0-9"), Wanted::Part(0..10));
        assert_eq!(wants("bytes=90-"), Wanted::Part(90..100));
        assert_eq!(wants("bytes=-5"), Wanted::Part(95..100));
        assert_eq!(wants("bytes=-500"), Wanted::Part(0..100));
        assert_eq!(wants("bytes=50-5000"), Wanted::Part(50..100));
        for nothing in ["bytes=100-", "bytes=200-300", "bytes=-0"] {
            assert_eq!(wants(nothing), Wanted::Nothing, "{nothing}");
        }
        for whole in [
            "bytes=5-4",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes=x-y",
            "bytes",
            "bytes=+0-9",
            "bytes=-",
        ] {
            assert_eq!(wants(whole), Wanted::Whole, "{whole}");
        }
        let after =
            |known| wanted(&headers(&[(RANGE, "bytes=0-9"), (IF_RANGE, known)]), &version(), 100);
        assert_eq!(after("\"old\""), Wanted::Whole, "it has changed");
        assert_eq!(after("W/\"t\""), Wanted::Whole, "it may have changed a little");
        assert_eq!(after("\"t\""), Wanted::Part(0..10));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Wanted::Part(0..10));
    }

    #[test]
    fn conditions_are_those_of_rfc_9110_in_its_order() {
        const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
        const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const LATER: &str = "Sunday, 06-Nov-94 09:49:37 GMT";
        let answer = |lines: &[(HeaderName, &'static str)]| {
            version().answers(&headers(lines)).map_or(200, |status| status.as_u16())
        };
        assert_eq!(answer(&[]), 200);
        for (known, status) in [
            ("\"t\"", 304),
            ("W/\"t\"", 304),
            ("\"a\", \"t\"", 304),
            ("*", 304),
            ("\"a\"", 200),
            ("", 200),
        ] {
            assert_eq!(answer(&[(IF_NONE_MATCH, known)]), status, "{known}");
        }
        assert_eq!(answer(&[(IF_NONE_MATCH, "\"a\""), (IF_NONE_MATCH, "\"t\"")]), 304);
        for (date, status) in [(EARLIER, 200), (SAME, 304), (LATER, 304), ("soon", 200)] {
            assert_eq!(answer(&[(IF_MODIFIED_SINCE, date)]), status, "{date}");
        }
        assert_eq!(answer(&[(IF_NONE_MATCH, "\"a\""), (IF_MODIFIED_SINCE, LATER)]), 200);
        for (tag, status) in [("\"t\"", 200), ("*", 200), ("\"a\"", 412), ("W/\"t\"", 412)] {
            assert_eq!(answer(&[(IF_MATCH, tag)]), status, "{tag}");
        }
        for (date, status) in [(EARLIER, 412), (SAME, 200), (LATER, 200), ("soon", 200)] {
            assert_eq!(answer(&[(IF_UNMODIFIED_SINCE, date)]), status, "{date}");
        }
        assert_eq!(answer(&[(IF_MATCH, "\"t\""), (IF_UNMODIFIED_SINCE, EARLIER)]), 200);
        assert_eq!(answer(&[(IF_MATCH, "\"a\""), (IF_NONE_MATCH, "\"t\"")]), 412);
    }

    #[test]
    fn a_folder_is_moved_to_on_this_host_only() {
        let location = |path: &str, query| {
            let moved = moved(&tidegate_rules::path::normalise(path.as_bytes()), query).unwrap();
            moved.headers()[LOCATION].to_str().unwrap().to_owned()
        };
        assert_eq!(location("/a b/c", None), "/a%20b/c/");
        assert_eq!(location("//evil.example/..//a", Some("b=c")), "/a/?b=c");
        assert_eq!(location("/\\evil.example", None), "/evil.example/");
        assert_eq!(location("/", None), "/");
        assert_eq!(location("/a%0d%0aSet-Cookie:x", None), "/a%0D%0ASet-Cookie%3Ax/");
    }
}
