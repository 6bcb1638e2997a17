//! The server behind a gateway: it finds where a request ends and sends the same kilobyte back, and does nothing
//! else. A server that does more would be measured with whatever stands in front of it.

use std::error::Error;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::wire::server::local;

/// How the benchmark starts it: with this word and a port.
pub(crate) const SUBCOMMAND: &str = "edge-upstream";

/// How long its answers are, without their heads.
const BODY_BYTES: usize = 1024;
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Serves until the process is ended.
pub(crate) fn serve(port: &str) -> Result<(), Box<dyn Error>> {
    let address = local(port.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            // A connection that breaks was the other end's to keep.
            tokio::spawn(async move { _ = answer(stream).await });
        }
    })
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let response = response();
    let (mut buffer, mut length) = (vec![0; HEAD_BYTES_MAX], 0);
    loop {
        let read = stream.read(&mut buffer[length..]).await?;
        if read == 0 {
            return Ok(());
        }
        length += read;
        // Requests have no bodies, and come one at a time.
        if buffer[..length].ends_with(b"\r\n\r\n") {
            stream.write_all(&response).await?;
            length = 0;
        }
    }
}

fn response() -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {BODY_BYTES}\r\n\
         date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
    );
    [head.as_bytes(), &[b'x'; BODY_BYTES]].concat()
}
