//! Fewer, larger writes: gathers what a connection writes while it is polled and sends it when the poll is over.
//!
//! HTTP/2 flushes after every frame, so that a poll which answers ten requests, or tells a hundred watches of one
//! event, makes as many TLS records and system calls. Here a flush inside a poll does nothing, and [`Gather::send`]
//! after it sends everything at once. Nothing waits: the poll that wrote is the poll that sends. A full buffer ends the
//! poll, so that one connection's turn is short however much it has to say.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What one poll may gather; more waits for the connection's next turn.
const GATHERED_BYTES_MAX: usize = 64 * 1024;
/// A buffer that has grown beyond this is not kept between polls: an idle connection holds little memory.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// The end of a stream that HTTP is spoken on.
pub(crate) struct Gathering<S>(Arc<Mutex<Shared<S>>>);

/// The end that sends. Only the task that polls the connection has it, so the lock is never waited for.
pub(crate) struct Gather<S>(Arc<Mutex<Shared<S>>>);

struct Shared<S> {
    stream: S,
    gathered: Vec<u8>,
    /// How much of `gathered` the stream has taken.
    sent: usize,
    /// Whether the connection has more to write than there was room for.
    more: bool,
    /// Whether the stream may still hold back some of what it took: TLS keeps records that the socket had no room for.
    unflushed: bool,
}

pub(crate) fn gather<S: AsyncWrite + Unpin>(stream: S) -> (Gathering<S>, Gather<S>) {
    let shared =
        Arc::new(Mutex::new(Shared { stream, gathered: Vec::new(), sent: 0, more: false, unflushed: false }));
    (Gathering(shared.clone()), Gather(shared))
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    /// How much waits to be sent.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().gathered.len()
    }

    /// Sends what the last poll wrote. Pending when the other end is slow; the task is woken to go on.
    pub(crate) fn send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.0.lock();
        if shared.gathered.is_empty() && !shared.unflushed {
            return Poll::Ready(Ok(()));
        }
        ready!(shared.drain(context))?;
        if std::mem::take(&mut shared.more) {
            // The connection goes on when the others have had their turn.
            context.waker().wake_by_ref();
        } else if shared.gathered.capacity() > KEPT_BYTES_MAX {
            shared.gathered = Vec::new();
        }
        ready!(Pin::new(&mut shared.stream).poll_flush(context))?;
        shared.unflushed = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Shared<S> {
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.gathered.len() {
            let rest = &self.gathered[self.sent..];
            let taken = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += taken;
            self.unflushed = true;
        }
        self.sent = 0;
        self.gathered.clear();
        Poll::Ready(Ok(()))
    }

    /// Makes room for more and says how much there is; pending when the buffer is full. [`Gather::send`] wakes whoever
    /// waits.
    fn reserve(&mut self, wanted: usize) -> Poll<usize> {
        if self.gathered.len() >= GATHERED_BYTES_MAX {
            self.more = true;
            return Poll::Pending;
        }
        if self.gathered.len() + wanted > KEPT_BYTES_MAX {
            // Once it is more than a little it is likely to be a lot: grow in one step.
            self.gathered.reserve_exact(GATHERED_BYTES_MAX - self.gathered.len());
        }
        Poll::Ready(GATHERED_BYTES_MAX - self.gathered.len())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathering<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathering<S> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.0.lock();
        let room = ready!(shared.reserve(bytes.len()));
        let taken = bytes.len().min(room);
        shared.gathered.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.0.lock();
        let wanted = pieces.iter().map(|piece| piece.len()).sum();
        let mut room = ready!(shared.reserve(wanted));
        let mut total = 0;
        for piece in pieces {
            let taken = piece.len().min(room);
            shared.gathered.extend_from_slice(&piece[..taken]);
            (room, total) = (room - taken, total + taken);
            if room == 0 {
                break;
            }
        }
        Poll::Ready(Ok(total))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Whoever polls the connection sends when it has been polled.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.0.lock();
        ready!(shared.drain(context))?;
        Pin::new(&mut shared.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A pipe that holds 100 bytes: writing more waits for the reader.
    fn pipe() -> (Gathering<tokio::io::DuplexStream>, Gather<tokio::io::DuplexStream>, tokio::io::DuplexStream)
    {
        let (near, far) = tokio::io::duplex(100);
        let (gathering, gather) = gather(near);
        (gathering, gather, far)
    }

    #[tokio::test]
    async fn nothing_goes_out_before_send() {
        let (mut gathering, gather, mut far) = pipe();
        gathering.write_all(b"one ").await.unwrap();
        gathering.flush().await.unwrap();
        gathering.write_all(b"two").await.unwrap();
        gathering.flush().await.unwrap();
        let mut buffer = [0; 16];
        let early = std::future::poll_fn(|context| {
            let mut buffer = ReadBuf::new(&mut buffer);
            Poll::Ready(Pin::new(&mut far).poll_read(context, &mut buffer).is_ready())
        });
        assert!(!early.await, "written before it was sent");
        std::future::poll_fn(|context| gather.send(context)).await.unwrap();
        let len = far.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..len], b"one two");
    }

    /// Takes everything at once, as TLS does, and passes it on when it is flushed and the way is free.
    #[derive(Default)]
    struct HoldsBack {
        held: usize,
        passed_on: usize,
        blocked: bool,
    }

    impl AsyncWrite for HoldsBack {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.held += bytes.len();
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.blocked {
                return Poll::Pending;
            }
            self.passed_on += std::mem::take(&mut self.held);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_flush(context)
        }
    }

    #[test]
    fn what_the_stream_holds_back_is_sent_later() {
        let (mut gathering, gather) = gather(HoldsBack { blocked: true, ..HoldsBack::default() });
        let waker = futures_util::task::noop_waker();
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut gathering).poll_write(&mut context, b"the end").is_ready());
        assert!(gather.send(&mut context).is_pending());
        gather.0.lock().stream.blocked = false;
        assert!(gather.send(&mut context).is_ready());
        assert_eq!(gather.0.lock().stream.passed_on, 7);
    }

    #[tokio::test]
    async fn a_slow_reader_gets_everything_in_order() {
        let (mut gathering, gather, mut far) = pipe();
        let sent: Vec<u8> =
            (0..GATHERED_BYTES_MAX * 3).map(|index| u8::try_from(index % 251).unwrap()).collect();
        let expected = sent.clone();
        let writer = async move {
            let mut rest = &sent[..];
            let mut full = false;
            std::future::poll_fn(|context| {
                while !rest.is_empty() {
                    let piece = &rest[..rest.len().min(1000)];
                    match Pin::new(&mut gathering).poll_write(context, piece) {
                        Poll::Ready(taken) => rest = &rest[taken.unwrap()..],
                        Poll::Pending => {
                            full = true;
                            break;
                        }
                    }
                }
                let sent = gather.send(context);
                if rest.is_empty() { sent } else { Poll::Pending }
            })
            .await
            .unwrap();
            assert!(full, "a turn had no end");
            gathering.shutdown().await.unwrap();
        };
        let reader = async move {
            let mut received = Vec::new();
            far.read_to_end(&mut received).await.unwrap();
            received
        };
        let ((), received) = tokio::join!(writer, reader);
        assert!(received == expected, "{} of {} bytes", received.len(), expected.len());
    }
}
