//! HTTP/1.1 over TLS, blocking, one request at a time: as little as tests need and nothing done behind their back.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use serde_json::Value;

/// A server that is silent for longer has failed the test.
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// A connection that stays open between requests.
pub struct Connection {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

/// An answer, or only its head if its body is a stream.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub code: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Connection {
    pub fn open(
        address: SocketAddr,
        server_name: &ServerName<'static>,
        tls: Arc<ClientConfig>,
    ) -> anyhow::Result<Connection> {
        let tcp = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        tcp.set_read_timeout(Some(READ_PATIENCE))?;
        tcp.set_nodelay(true)?;
        let session = ClientConnection::new(tls, server_name.clone())?;
        Ok(Connection { stream: BufReader::new(StreamOwned::new(session, tcp)) })
    }

    /// Sends a request and reads the whole answer.
    pub fn send(&mut self, head: &str, body: &[u8]) -> anyhow::Result<Reply> {
        let is_head = head.starts_with("HEAD ");
        let mut reply = self.start(head, body)?;
        if is_head || matches!(reply.code, 204 | 304) {
            return Ok(reply);
        }
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(piece) = self.chunk()? {
                reply.body.extend(piece);
            }
        } else if let Some(length) = reply.header("content-length") {
            reply.body = vec![0; length.parse()?];
            self.stream.read_exact(&mut reply.body)?;
        } else {
            self.stream.read_to_end(&mut reply.body)?;
        }
        Ok(reply)
    }

    /// Sends a request and reads the head of the answer.
    pub fn start(&mut self, head: &str, body: &[u8]) -> anyhow::Result<Reply> {
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes())?;
        if let Err(error) = stream.write_all(body).and_then(|()| stream.flush())
            && body.len() < 1 << 20
        {
            // A server may refuse a large body before it has read it all.
            return Err(error.into());
        }
        let first = self.line()?;
        let code = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut reply =
            Reply { code: code.with_context(|| format!("not HTTP: {first:?}"))?, ..Reply::default() };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(reply);
            }
            let (name, value) = line.split_once(':').context("a header without a colon")?;
            reply.headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
        }
    }

    /// Sends bytes and waits for nothing.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes)?;
        Ok(stream.flush()?)
    }

    /// Takes so many bytes of whatever comes. An error if there are fewer.
    pub fn take(&mut self, len: usize) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Takes everything until the server ends the connection, in good order or not. An error if it does not.
    pub fn is_ended(&mut self) -> anyhow::Result<()> {
        self.rest().map(drop)
    }

    /// What comes until the server ends the connection, in good order or not. An error if it does not.
    pub fn rest(&mut self) -> anyhow::Result<String> {
        let (mut rest, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match self.stream.read(&mut buffer) {
                Ok(len) if len > 0 => rest.extend_from_slice(&buffer[..len]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(error.into());
                }
                Ok(_) | Err(_) => return Ok(String::from_utf8_lossy(&rest).into_owned()),
            }
        }
    }

    /// The next chunk of a chunked body; `None` after the last one. An error if the connection ends before it.
    pub fn chunk(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let size = self.line()?;
        let size =
            usize::from_str_radix(size.trim(), 16).with_context(|| format!("not a chunk: {size:?}"))?;
        let mut piece = vec![0; size];
        self.stream.read_exact(&mut piece)?;
        self.line()?;
        Ok((size > 0).then_some(piece))
    }

    /// Waits less than usual for the next bytes.
    pub fn set_patience(&self, patience: Duration) -> anyhow::Result<()> {
        Ok(self.stream.get_ref().sock.set_read_timeout(Some(patience))?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("the connection ended");
        }
        Ok(line.trim_end().to_string())
    }
}

impl Reply {
    /// A header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Fails, showing the answer, unless it has this code.
    #[track_caller]
    pub fn expect(self, code: u16) -> Reply {
        assert_eq!(self.code, code, "{}", self.text());
        self
    }
}
