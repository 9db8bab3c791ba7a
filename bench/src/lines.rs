//! The lines of a body that never ends: what a watch sends, one event each.

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

pub(crate) struct Lines {
    body: Incoming,
    /// What has come and was not handed out yet starts at `at`. An event may be split over frames.
    buffer: Vec<u8>,
    at: usize,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Lines {
        Lines { body, buffer: Vec::new(), at: 0 }
    }

    /// The next line, without its end; `None` after the last whole one.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<&[u8]>> {
        let mut searched = self.at;
        loop {
            if let Some(len) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let start = std::mem::replace(&mut self.at, searched + len + 1);
                return Ok(Some(&self.buffer[start..searched + len]));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            searched = self.buffer.len();
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(piece) = frame.context("a watch broke off")?.into_data() {
                self.buffer.extend_from_slice(&piece);
            }
        }
    }
}
