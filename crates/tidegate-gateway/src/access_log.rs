//! The access log: one line for each request, in the combined format or as JSON. It is the one place where
//! addresses and paths are written down, and is off unless the operator turns it on.
//!
//! A thread writes the lines, so that no request waits for a disk. Where it cannot follow, lines are lost and
//! counted; where it fails, that is told once, and once more when it works again. A request that hyper refuses before it has a head, with 400 or 431, has no line.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use tidegate::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How many lines wait to be written.
const LINES_MAX: usize = 8_192;
/// How long the end of a process waits for the last lines, and how often it looks whether they have room.
const FINISH_MAX: Duration = Duration::from_secs(5);
const FINISH_EVERY: Duration = Duration::from_millis(10);
/// How long it waits for a file that is being opened anew. A pipe that nobody reads is never open.
const OPEN_MAX: Duration = Duration::from_millis(500);

/// Where lines go, and what they look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// A file, which is added to; `None` is standard output.
    pub path: Option<PathBuf>,
    /// What they look like.
    pub format: AccessLogFormat,
}

/// What a line looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// As Apache and nginx write it, and everybody reads it.
    #[default]
    Combined,
    /// One object of JSON.
    Json,
}

/// A log that is open. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    lines: SyncSender<Message>,
    format: AccessLogFormat,
    lost: Arc<AtomicU64>,
    /// Whether the thread has something to write to, and does not wait for who reads a pipe.
    is_open: Arc<AtomicBool>,
    /// Whether the file was moved away, and another is to be opened.
    is_moved: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// There is something to be done that is no line.
    Wake,
    /// Tells when everything before it is written, by being dropped.
    Written(oneshot::Sender<()>),
}

impl AccessLog {
    /// Opens the file and starts the thread. A pipe is opened by the thread: it waits for who reads it.
    pub(crate) fn open(settings: &AccessLogSettings) -> io::Result<Self> {
        let path = settings.path.clone();
        let out = if path.as_deref().is_some_and(is_pipe) {
            None
        } else {
            Some(opened(path.as_deref())?)
        };
        let (lines, taken) = sync_channel(LINES_MAX);
        let is_open = Arc::new(AtomicBool::new(out.is_some()));
        let is_stale = out.is_none();
        let tells = Arc::clone(&is_open);
        let is_moved = Arc::new(AtomicBool::new(false));
        let hears = Arc::clone(&is_moved);
        let writer = Writer {
            path,
            out,
            is_stale,
            is_open: tells,
            is_moved: hears,
            is_failing: false,
            lost: 0,
        };
        let writing = move || writer.run(&taken);
        thread::Builder::new().name("access-log".to_owned()).spawn(writing)?;
        Ok(Self { lines, format: settings.format, lost: Arc::default(), is_open, is_moved })
    }

    /// Opens the file anew, after another program has moved it away.
    pub(crate) fn reopen(&self) {
        // ORDERING: it stands for itself, here and where it is read.
        self.is_moved.store(true, Ordering::Relaxed);
        // Where the queue is full, the thread looks when it has written it.
        let _ = self.lines.try_send(Message::Wake);
    }

    /// Waits until all that was logged is written, for the end of a process; not for long where the disk
    /// does not take it.
    pub(crate) async fn finish(&self) {
        let opening = async {
            // ORDERING: a moment later it may be another.
            while !self.is_open.load(Ordering::Relaxed) {
                tokio::time::sleep(FINISH_EVERY).await;
            }
        };
        if tokio::time::timeout(OPEN_MAX, opening).await.is_err() {
            return;
        }
        let (written, is_written) = oneshot::channel();
        let finishing = async {
            let mut message = Message::Written(written);
            while let Err(TrySendError::Full(again)) = self.lines.try_send(message) {
                message = again;
                tokio::time::sleep(FINISH_EVERY).await;
            }
            // An error is the end of the thread, which has then nothing left to write.
            let _ = is_written.await;
        };
        let _ = tokio::time::timeout(FINISH_MAX, finishing).await;
    }

    fn write(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Message::Line(line)) {
            // ORDERING: the number stands for itself.
            if self.lost.fetch_add(1, Ordering::Relaxed).is_multiple_of(LINES_MAX as u64) {
                tracing::warn!("the access log cannot be written as fast as requests come");
            }
        }
    }
}

fn opened(path: Option<&Path>) -> io::Result<Box<dyn Write + Send>> {
    Ok(match path {
        Some(path) => Box::new(append(path)?),
        None => Box::new(io::stdout()),
    })
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// What the thread knows.
struct Writer {
    path: Option<PathBuf>,
    out: Option<Box<dyn Write + Send>>,
    /// Whether another file is to be opened, and was not to be had so far.
    is_stale: bool,
    is_open: Arc<AtomicBool>,
    is_moved: Arc<AtomicBool>,
    is_failing: bool,
    /// How many lines were lost since it fails.
    lost: u64,
}

impl Writer {
    /// Writes what comes, many lines in one go where many wait.
    fn run(mut self, taken: &Receiver<Message>) {
        let mut buffer = Vec::new();
        let opened = self.refresh();
        self.note(opened, 0);
        while let Ok(first) = taken.recv() {
            let mut lines = 0;
            let mut waiting = Vec::new();
            for message in std::iter::once(first).chain(taken.try_iter().take(LINES_MAX)) {
                match message {
                    Message::Line(line) => {
                        buffer.extend_from_slice(line.as_bytes());
                        lines += 1;
                    }
                    Message::Wake => {}
                    Message::Written(written) => waiting.push(written),
                }
            }
            // Who cannot write the log goes on forwarding.
            let opened = self.refresh();
            let written = self.write(&buffer);
            let lost = if written.is_err() { lines } else { 0 };
            self.note(opened.and(written), lost);
            buffer.clear();
            drop(waiting);
            if self.is_moved.swap(false, Ordering::Relaxed) {
                self.is_stale = true;
                let opened = self.refresh();
                self.note(opened, 0);
            }
        }
    }

    /// Opens the file where that is due. What was open is written until it can be done.
    fn refresh(&mut self) -> io::Result<()> {
        if !self.is_stale {
            return Ok(());
        }
        // ORDERING: it stands for itself.
        self.is_open.store(false, Ordering::Relaxed);
        let opened = opened(self.path.as_deref());
        self.is_open.store(true, Ordering::Relaxed);
        self.out = Some(opened?);
        self.is_stale = false;
        Ok(())
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let out = self.out.as_mut().ok_or(io::ErrorKind::NotFound)?;
        out.write_all(lines).and_then(|()| out.flush())
    }

    /// Tells when it begins to fail and when it works again, and not for every line.
    fn note(&mut self, done: io::Result<()>, lost: u64) {
        self.lost += lost;
        let path = self.path.as_deref().unwrap_or(Path::new("standard output")).display();
        match done {
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::warn!("the access log {path} cannot be written (`access_log`): {error}");
            }
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                let lost = std::mem::take(&mut self.lost);
                tracing::warn!(lost, "the access log {path} is written again");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// What is known of one request; written when this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    log: AccessLog,
    request: Asked,
    at: Timestamp,
    since: Instant,
    status: u16,
    bytes: u64,
    is_broken: bool,
}

#[derive(Debug)]
struct Asked {
    client: Option<IpAddr>,
    user: Option<String>,
    method: Method,
    host: Option<HeaderValue>,
    uri: Uri,
    version: Version,
    referer: Option<HeaderValue>,
    agent: Option<HeaderValue>,
}

impl Entry {
    pub(crate) fn new(
        log: &AccessLog,
        request: (&Method, Uri, Version, &HeaderMap),
        client: Option<IpAddr>,
        at: Timestamp,
    ) -> Self {
        let (method, uri, version, headers) = request;
        let request = Asked {
            client,
            user: None,
            method: method.clone(),
            host: headers.get(HOST).cloned(),
            uri,
            version,
            referer: headers.get(REFERER).cloned(),
            agent: headers.get(USER_AGENT).cloned(),
        };
        let (log, since) = (log.clone(), Instant::now());
        Self { log, request, at, since, status: 499, bytes: 0, is_broken: false }
    }

    pub(crate) fn by(&mut self, user: &str) {
        self.request.user = Some(user.to_owned());
    }

    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    pub(crate) fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(crate) fn broke(&mut self) {
        self.is_broken = true;
    }

    /// `192.0.2.7 - ann [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 2326 "-" "curl/8"`.
    fn combined(&self) -> String {
        let Asked { client, user, method, uri, version, referer, agent, .. } = &self.request;
        let mut line = client.map_or_else(|| "-".to_owned(), |client| client.to_string());
        // Writing to a `String` cannot fail.
        let user = user.as_deref().map_or_else(|| "-".to_owned(), |user| escaped(user.as_bytes()));
        let when = time(self.at).strftime("%d/%b/%Y:%H:%M:%S %z").to_string();
        let target = escaped(path(uri).as_bytes());
        let shown = |value: &Option<HeaderValue>| {
            value.as_ref().map_or_else(|| "-".to_owned(), |value| escaped(value.as_bytes()))
        };
        let (referer, agent) = (shown(referer), shown(agent));
        let _ = write!(line, " - {user} [{when}] \"{method} {target} {version:?}\" ");
        let _ = writeln!(line, "{} {} \"{referer}\" \"{agent}\"", self.status, self.bytes);
        line
    }

    fn json(&self) -> String {
        let Asked { client, user, method, host, uri, version, referer, agent } = &self.request;
        let text = |value: &Option<HeaderValue>| {
            value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let took_ms = self.since.elapsed().as_secs_f64() * 1e3;
        let line = serde_json::json!({
            "time": time(self.at).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
            "client": client.map(|client| client.to_string()),
            "user": user,
            "method": method.as_str(),
            "host": uri.authority().map(|host| host.as_str().to_owned()).or_else(|| text(host)),
            "path": path(uri),
            "protocol": format!("{version:?}"),
            "status": self.status,
            "bytes": self.bytes,
            "took_ms": took_ms,
            "broken": self.is_broken,
            "referer": text(referer),
            "agent": text(agent),
        });
        format!("{line}\n")
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let line = match self.log.format {
            AccessLogFormat::Combined => self.combined(),
            AccessLogFormat::Json => self.json(),
        };
        self.log.write(line);
    }
}

fn path(uri: &Uri) -> &str {
    uri.path_and_query().map_or("-", |path| path.as_str())
}

fn time(at: Timestamp) -> jiff::Zoned {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    time.to_zoned(jiff::tz::TimeZone::UTC)
}

/// Nothing in it ends a quoted text or a line.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => {
                let _ = write!(text, "\\x{byte:02x}");
            }
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(log: &AccessLog) -> Entry {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_bytes(b"a\"b\tc\xff").unwrap());
        headers.insert(HOST, HeaderValue::from_static("a.example:8000"));
        let uri: Uri = "/a?b=1".parse().unwrap();
        let request = (&Method::GET, uri, Version::HTTP_11, &headers);
        let client = Some("192.0.2.7".parse().unwrap());
        let mut entry = Entry::new(log, request, client, Timestamp::from_secs(971_186_136));
        entry.answered(StatusCode::OK);
        entry.sent(2326);
        entry.by("ann");
        entry
    }

    fn log(format: AccessLogFormat) -> (AccessLog, Receiver<Message>) {
        let (lines, taken) = sync_channel(LINES_MAX);
        let (lost, is_open, is_moved) = Default::default();
        (AccessLog { lines, format, lost, is_open, is_moved }, taken)
    }

    fn line(format: AccessLogFormat) -> String {
        let (log, taken) = log(format);
        drop(entry(&log));
        match taken.recv() {
            Ok(Message::Line(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_line_is_in_the_combined_format_and_cannot_be_forged() {
        assert_eq!(
            line(AccessLogFormat::Combined),
            "192.0.2.7 - ann [10/Oct/2000:13:55:36 +0000] \"GET /a?b=1 HTTP/1.1\" 200 2326 \"-\" \
             \"a\\x22b\\x09c\\xff\"\n"
        );
    }

    #[tokio::test]
    async fn a_line_of_json_is_one_object() {
        let line = line(AccessLogFormat::Json);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["time"], "2000-10-10T13:55:36.000Z");
        assert_eq!((&value["status"], &value["path"]), (&200.into(), &"/a?b=1".into()));
        assert_eq!(value["host"], "a.example:8000");
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_lines_while_the_file_is_opened_anew() {
        let (log, taken) = log(AccessLogFormat::Combined);
        drop(entry(&log));
        let finishing = log.clone();
        let finishing = tokio::spawn(async move { finishing.finish().await });
        tokio::time::sleep(OPEN_MAX / 2).await;
        assert!(!finishing.is_finished(), "the file is open in a moment");
        log.is_open.store(true, Ordering::Relaxed);
        tokio::time::sleep(FINISH_MAX / 2).await;
        assert!(!finishing.is_finished(), "the line is not written");
        let lines = taken.try_iter().filter(|message| matches!(message, Message::Line(_))).count();
        assert_eq!(lines, 1);
        finishing.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_does_not_wait_for_who_never_reads() {
        let (log, _taken) = log(AccessLogFormat::Combined);
        let begin = Instant::now();
        log.finish().await;
        assert!(begin.elapsed() < 2 * OPEN_MAX, "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn a_disk_that_cannot_follow_stops_nobody() {
        let (log, _taken) = log(AccessLogFormat::Combined);
        for _ in 0..LINES_MAX + 5 {
            drop(entry(&log));
        }
        assert_eq!(log.lost.load(Ordering::Relaxed), 5);
    }

    #[tokio::test]
    async fn a_file_is_opened_anew_also_where_many_lines_wait() {
        let name = format!("tidegate-access-log-{}", std::process::id());
        let [path, moved] = ["", ".1"].map(|end| std::env::temp_dir().join(name.clone() + end));
        let (log, taken) = log(AccessLogFormat::Combined);
        let writer = Writer {
            out: Some(opened(Some(&path)).unwrap()),
            path: Some(path.clone()),
            is_stale: false,
            is_open: Arc::clone(&log.is_open),
            is_moved: Arc::clone(&log.is_moved),
            is_failing: false,
            lost: 0,
        };
        std::fs::rename(&path, &moved).unwrap();
        for _ in 0..LINES_MAX {
            drop(entry(&log));
        }
        log.reopen();
        drop(log);
        writer.run(&taken);
        let lines = std::fs::read_to_string(&moved).unwrap().lines().count();
        assert_eq!((lines, path.exists()), (LINES_MAX, true));
        for file in [path, moved] {
            std::fs::remove_file(file).unwrap();
        }
    }
}
