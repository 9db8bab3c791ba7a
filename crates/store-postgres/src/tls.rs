//! TLS between this side and the server: the certificate must be the server's, by name and by authority.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    pub(crate) fn new(config: ClientConfig) -> Tls {
        Tls(TlsConnector::from(Arc::new(config)))
    }
}

/// A handshake with one server.
pub(crate) struct Handshake(TlsConnector, ServerName<'static>);

pub(crate) struct Encrypted(tokio_rustls::client::TlsStream<Socket>);

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        let name = ServerName::try_from(domain.to_owned());
        Ok(Handshake(
            self.0.clone(),
            name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        ))
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, stream).await.map(Encrypted) })
    }
}

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        // It protects from those who are believed to be the server: here only who has its certificate is.
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
