//! A client's socket, which moves with its connection: whoever serves the connection also waits for the socket. Left with
//! the threads that accepted it, each request of a connection that has moved would wake one of those first, only to wake another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::turns::Lane;

pub(crate) struct Socket {
    /// `None` once it could not be moved.
    stream: Option<TcpStream>,
    lane: Arc<Lane>,
    /// How often the connection had moved when the socket was last waited for.
    moves: u64,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, lane: Arc<Lane>) -> Socket {
        Socket { moves: lane.moves(), stream: Some(stream), lane }
    }

    /// The stream, waited for by the runtime that polls it now.
    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let moves = self.lane.moves();
        if moves != self.moves
            && let Some(stream) = self.stream.take()
        {
            self.moves = moves;
            self.stream = Some(TcpStream::from_std(stream.into_std()?)?);
        }
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    use super::*;

    /// Whoever waited for it first may be gone.
    #[test]
    fn a_socket_is_waited_for_where_it_is_read() {
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let lane = Arc::new(Lane::default());
        let (mut near, far) = first.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (near, far) = tokio::join!(listener.accept(), TcpStream::connect(address));
            (Socket::new(near.unwrap().0, lane.clone()), far.unwrap().into_std().unwrap())
        });
        first.block_on(async {
            let early = tokio::time::timeout(std::time::Duration::from_millis(5), near.read_u8()).await;
            assert!(early.is_err(), "there is nothing yet");
        });
        lane.note_move();
        second.block_on(async move {
            let mut far = TcpStream::from_std(far).unwrap();
            let written = async {
                tokio::task::yield_now().await;
                first.shutdown_background();
                far.write_all(b"a").await.unwrap();
            };
            let (byte, ()) = tokio::join!(near.read_u8(), written);
            assert_eq!(byte.unwrap(), b'a');
            near.write_all(b"b").await.unwrap();
            assert_eq!(far.read_u8().await.unwrap(), b'b');
        });
    }
}
