//! Static files from a folder: whole or a range of them, with what a client needs to ask only once. Nothing
//! outside of the folder is ever opened, however a path is spelled and wherever a link leads.

use std::fs::{File, Metadata};
use std::future::Future as _;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, Response, StatusCode};
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

    /// The answer to a request for what is at `path`, below the route's own path.
    pub(crate) async fn answer(
        &self,
        method: &Method,
        path: &[u8],
        headers: &HeaderMap,
    ) -> Result<Response<ResponseBody>, Problem> {
        if ![Method::GET, Method::HEAD].contains(method) {
            return Err(Problem::Method);
        }
        let relative = relative(path).ok_or(Problem::NoRoute)?;
        let root = self.root.clone();
        let opened = tokio::task::spawn_blocking(move || open(&root, &relative)).await;
        let found = opened.ok().and_then(Result::ok).ok_or(Problem::NoRoute)?;
        Ok(found.response(method, headers))
    }
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
    if path.is_dir() {
        path = path.join(INDEX).canonicalize()?;
    }
    if !path.starts_with(root) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let file = File::open(&path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(Found { file, metadata, kind: kind(&path) })
}

struct Found {
    file: File,
    metadata: Metadata,
    kind: &'static str,
}

impl Found {
    fn response(self, method: &Method, asked: &HeaderMap) -> Response<ResponseBody> {
        let length = self.metadata.len();
        let (tag, modified) = self.validators();
        let mut response = Response::new(ResponseBody::full(Bytes::new()));
        let headers = response.headers_mut();
        headers.insert(ETAG, tag.clone());
        headers.insert(LAST_MODIFIED, modified.clone());
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if is_known(asked, &tag, &modified) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let range = match wanted(asked, &tag, &modified, length) {
            Wanted::Whole => 0..length,
            Wanted::Part(range) => {
                let shown = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                if let Ok(shown) = HeaderValue::from_str(&shown) {
                    headers.insert(CONTENT_RANGE, shown);
                }
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                range
            }
            Wanted::Nothing => {
                if let Ok(shown) = HeaderValue::from_str(&format!("bytes */{length}")) {
                    headers.insert(CONTENT_RANGE, shown);
                }
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

    /// The tag and the time by which a client knows a file again.
    fn validators(&self) -> (HeaderValue, HeaderValue) {
        let modified = self.metadata.modified().ok();
        let since =
            modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let tag = format!("\"{:x}-{:x}\"", since.as_micros(), self.metadata.len());
        let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
        let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
        let text = time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let value = |text: &str| {
            // Digits and letters are always a value.
            HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
        };
        (value(&tag), value(&text))
    }
}

/// Whether the client has it already. Its tag goes before its time (RFC 9110, section 13.2.2).
fn is_known(asked: &HeaderMap, tag: &HeaderValue, modified: &HeaderValue) -> bool {
    match asked.get(IF_NONE_MATCH) {
        Some(tags) => tags.as_bytes().split(|byte| *byte == b',').any(|one| {
            let one = one.trim_ascii();
            one == b"*" || one.strip_prefix(b"W/").unwrap_or(one) == tag.as_bytes()
        }),
        None => asked.get(IF_MODIFIED_SINCE) == Some(modified),
    }
}

/// What of a file is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part(Range<u64>),
    /// A range that lies outside.
    Nothing,
}

fn wanted(asked: &HeaderMap, tag: &HeaderValue, modified: &HeaderValue, length: u64) -> Wanted {
    let is_same = asked.get(IF_RANGE).is_none_or(|known| known == tag || known == modified);
    let range = asked.get(RANGE).filter(|_| is_same).and_then(|range| range.to_str().ok());
    // Several ranges, and what is no range, are answered with all of it, as RFC 9110 allows.
    let Some((first, last)) = range
        .and_then(|range| range.strip_prefix("bytes="))
        .filter(|range| !range.contains(','))
        .and_then(|range| range.split_once('-'))
    else {
        return Wanted::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    let number = |text: &str| text.parse::<u64>().ok();
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

    #[test]
    fn ranges_are_what_rfc_9110_says() {
        let tag = HeaderValue::from_static("\"t\"");
        let modified = HeaderValue::from_static("now");
        let wants = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static(text));
            wanted(&headers, &tag, &modified, 100)
        };
        assert_eq!(wants("bytes=0-9"), Wanted::Part(0..10));
        assert_eq!(wants("bytes=90-"), Wanted::Part(90..100));
        assert_eq!(wants("bytes=-5"), Wanted::Part(95..100));
        assert_eq!(wants("bytes=-500"), Wanted::Part(0..100));
        assert_eq!(wants("bytes=50-5000"), Wanted::Part(50..100));
        for nothing in ["bytes=100-", "bytes=200-300", "bytes=-0"] {
            assert_eq!(wants(nothing), Wanted::Nothing, "{nothing}");
        }
        for whole in ["bytes=5-4", "bytes=0-1,3-4", "lines=1-2", "bytes=x-y", "bytes"] {
            assert_eq!(wants(whole), Wanted::Whole, "{whole}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_static("bytes=0-9"));
        headers.insert(IF_RANGE, HeaderValue::from_static("\"old\""));
        assert_eq!(wanted(&headers, &tag, &modified, 100), Wanted::Whole, "it has changed");
    }
}
