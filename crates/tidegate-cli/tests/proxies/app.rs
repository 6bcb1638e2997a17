//! The application that the proxies protect. It says what reached it, so that tests can tell its
//! answers from those of a proxy.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Answers until it is dropped: 403 below `/forbidden`, not at all below `/crash`, 200 elsewhere.
pub(crate) struct App {
    port: u16,
    requests: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    accepts: Option<JoinHandle<()>>,
}

impl App {
    pub(crate) fn start(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a free port");
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let accepts = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // A connection ends when the proxy closes it, at the latest when the proxy ends.
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || answer_all(stream.ok()?, &counted));
            }
        });
        Self { port, requests, ends, accepts: Some(accepts) }
    }

    /// How many have reached it.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
    }
}

/// Answers one request after the other; `None` when the connection ends.
fn answer_all(mut stream: TcpStream, counted: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let length = head.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        counted.fetch_add(1, Ordering::SeqCst);
        if head.first()?.contains(" /crash") {
            return None;
        }
        stream.write_all(answer(head.first()?, &String::from_utf8_lossy(&body)).as_bytes()).ok()?;
    }
}

fn answer(request_line: &str, body: &str) -> String {
    let request = request_line.rsplit_once(' ').map_or(request_line, |(request, _)| request);
    let is_forbidden = request.contains(" /forbidden");
    let status = if is_forbidden { "403 Forbidden" } else { "200 OK" };
    let text = format!("the app got {request} {body}").trim_end().to_owned();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}
