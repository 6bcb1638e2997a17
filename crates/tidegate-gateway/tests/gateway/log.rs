//! What a gateway logs at the level at which it runs unless said, in a test with one thread.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The log of this thread, from when it was begun until it is dropped.
pub(crate) struct Log {
    written: Written,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn begin() -> Self {
        let written = Written::default();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(written.clone());
        let guard = tracing::subscriber::set_default(lines.finish());
        Self { written, _guard: guard }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.written.0.lock().clone()).unwrap()
    }

    /// The lines with these words.
    pub(crate) fn lines(&self, words: &str) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(words)).map(ToOwned::to_owned).collect()
    }
}

impl MakeWriter<'_> for Written {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
