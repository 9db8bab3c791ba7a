//! HTTP/2 over TLS, frame by frame, for tests of what a hostile client may do with it. Nothing is done behind the
//! test's back: no windows are opened, no pings answered, no settings acknowledged.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use rustls::{ClientConnection, StreamOwned};

use crate::client::Client;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;

pub struct Http2 {
    stream: StreamOwned<ClientConnection, TcpStream>,
    next_stream: u32,
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Http2 {
    /// Connects as a client would. `window` is what the server may send on a stream before it is allowed more.
    pub fn open(client: &Client, window: u32) -> anyhow::Result<Http2> {
        let mut tls = client.tls_config();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(client.address)?;
        tcp.set_read_timeout(Some(Duration::from_secs(30)))?;
        tcp.set_nodelay(true)?;
        let session = ClientConnection::new(Arc::new(tls), client.server_name.clone())?;
        let mut stream = StreamOwned::new(session, tcp);
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        let mut connection = Http2 { stream, next_stream: 1 };
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
        connection.send(SETTINGS, 0, 0, &setting)?;
        Ok(connection)
    }

    /// Waits less than usual for the next bytes, and for the server to take some.
    pub fn set_patience(&self, patience: Duration) -> anyhow::Result<()> {
        self.stream.sock.set_write_timeout(Some(patience))?;
        Ok(self.stream.sock.set_read_timeout(Some(patience))?)
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> anyhow::Result<()> {
        let length = u32::try_from(payload.len())?.to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        Ok(self.stream.write_all(&frame)?)
    }

    /// Sends a request without a body; returns its stream.
    pub fn request(&mut self, headers: &[(&str, &str)]) -> anyhow::Result<u32> {
        self.begin(headers, END_STREAM | END_HEADERS)
    }

    /// Sends the head of a request with these flags; returns its stream.
    pub fn begin(&mut self, headers: &[(&str, &str)], flags: u8) -> anyhow::Result<u32> {
        let stream = self.next_stream;
        self.next_stream += 2;
        let mut block = Vec::new();
        for (name, value) in headers {
            // A literal that is not indexed, its name and value as they are.
            block.push(0);
            for text in [name, value] {
                write_length(text.len(), &mut block);
                block.extend(text.as_bytes());
            }
        }
        ensure!(block.len() < 16 * 1024, "the headers do not fit in one frame");
        self.send(HEADERS, flags, stream, &block)?;
        Ok(stream)
    }

    /// A GET of a path, as a client of this host.
    pub fn get(&mut self, host: &str, path: &str, more: &[(&str, &str)]) -> anyhow::Result<u32> {
        let mut headers =
            vec![(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", path)];
        headers.extend(more);
        self.request(&headers)
    }

    /// The next frame. An error if the connection ends or nothing comes in time.
    pub fn frame(&mut self) -> anyhow::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The body of an answer, to its end. Resets and goodbyes are errors.
    pub fn body(&mut self, stream: u32) -> anyhow::Result<String> {
        let mut body = Vec::new();
        loop {
            let frame = self.frame()?;
            ensure!(frame.kind != GOAWAY, "the server said goodbye");
            if frame.stream != stream {
                continue;
            }
            ensure!(frame.kind != RST_STREAM, "the stream was reset");
            if frame.kind == DATA {
                body.extend(frame.payload);
            }
            if frame.flags & END_STREAM != 0 && matches!(frame.kind, DATA | HEADERS) {
                return Ok(String::from_utf8_lossy(&body).into_owned());
            }
        }
    }
}

/// A length in HPACK, of seven bits and what follows.
fn write_length(length: usize, out: &mut Vec<u8>) {
    let byte = |value: usize| value.to_le_bytes()[0];
    if length < 127 {
        return out.push(byte(length));
    }
    out.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        out.push(byte(rest) | 128);
        rest >>= 7;
    }
    out.push(byte(rest));
}
