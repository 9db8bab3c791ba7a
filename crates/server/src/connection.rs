//! Connections: accept, handshake, speak HTTP/1.1 or HTTP/2 as agreed, and stop in good order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::State;
use crate::chain::{self, Peer};
use crate::drive::{DriveError, Requests, drive};
use crate::drive_http1::Answers;
use crate::gather::gather;
use crate::patient::Patient;
use crate::pki::PkiError;
use crate::presented::Presented;
use crate::socket::Socket;
use crate::strangers::{Strangers, TooManyAnswers};
use crate::turns::Lane;

/// Watches a client may have open on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_000;
/// A request's head may weigh this much.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// What is made for a client before it has taken what was made earlier.
const SEND_BYTES_MAX: usize = 128 * 1024;
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address}: is another server using it?")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    pub async fn bind(address: SocketAddr) -> Result<Server, ServerError> {
        let listen = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Server { listener, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop; then readiness goes first, watches end, requests finish, connections close. Returns
    /// how many requests did not finish in time.
    pub async fn run(self, state: Arc<State>, stop: CancellationToken) -> Result<u64, ServerError> {
        let connections = TaskTracker::new();
        let closing = CancellationToken::new();
        let places = Arc::new(Semaphore::new(state.bounds.connections_max));
        let mut sweep = tokio::time::interval(Duration::from_secs(10));
        let stopped = async {
            stop.cancelled().await;
            // Not ready first, so that load balancers look elsewhere while everything still works.
            state.draining.store(true, Ordering::Relaxed);
            tokio::time::sleep(state.shutdown_delay).await;
        };
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => break,
                _ = sweep.tick() => state.gates.sweep(),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let Ok(place) = places.clone().try_acquire_owned() else { continue };
                        let lane = Arc::new(Lane::default());
                        let own = connection(stream, state.clone(), lane.clone(), closing.clone());
                        state.threads.spawn(&connections, lane, async move {
                            own.await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: wait for some to close.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }
        drop(self.listener);
        closing.cancel();
        state.stopping.cancel();
        connections.close();
        if tokio::time::timeout(state.bounds.drain_patience, connections.wait()).await.is_ok() {
            return Ok(0);
        }
        // A client that has nothing in flight and does not say goodbye has lost nothing.
        let unfinished = state.gates.requests();
        if unfinished > 0 {
            tracing::warn!(requests = unfinished, "some requests did not finish in time");
        }
        Ok(unfinished)
    }
}

async fn connection(stream: TcpStream, state: Arc<State>, lane: Arc<Lane>, closing: CancellationToken) {
    stream.set_nodelay(true).ok();
    let bounds = state.bounds;
    let address = stream.peer_addr().ok().map(|address| address.ip());
    let socket = Socket::new(stream, lane.clone());
    // The certificate and the authorities of the moment: both change while the server runs.
    let current = state.pki.current();
    let handshake = TlsAcceptor::from(current.tls.clone()).accept(Patient::new(socket, bounds.send_patience));
    let handshake = tokio::time::timeout(bounds.handshake_patience, handshake);
    let Ok(Ok(stream)) = handshake.await else { return };
    let (_, session) = stream.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    let peer = Arc::new(Peer {
        presented: Presented::new(chain, &state, &current),
        server_name: session.server_name().map(str::to_ascii_lowercase),
        address,
        lane,
        strangers: Strangers::new(&state.strangers),
    });
    drop(current);
    let http2 = session.alpn_protocol() == Some(b"h2");
    let outcome = if http2 {
        serve_http2(stream, state, peer, closing).await
    } else {
        serve_http1(stream, state, peer, closing).await
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn serve_http1(
    stream: TlsStream<Patient<Socket>>,
    state: Arc<State>,
    peer: Arc<Peer>,
    closing: CancellationToken,
) -> Result<(), DriveError> {
    let mut answers = Answers::default();
    let (made, head_patience) = (answers.made(), state.bounds.head_patience);
    let service = service_fn(move |request| {
        let (state, peer, made) = (state.clone(), peer.clone(), made.clone());
        async move {
            let answer = chain::serve(state, peer, request).await?;
            made.note(answer.body());
            Ok::<_, TooManyAnswers>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head_patience).max_buf_size(HEAD_BYTES_MAX as usize);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        outcome = answers.drive(connection.as_mut()) => return outcome,
        () = closing.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    answers.drive(connection).await
}

async fn serve_http2(
    stream: TlsStream<Patient<Socket>>,
    state: Arc<State>,
    peer: Arc<Peer>,
    closing: CancellationToken,
) -> Result<(), DriveError> {
    let mut requests = Requests::default();
    let (allowance, idle_every) = (requests.allowance(), state.bounds.idle_check_every);
    let service = service_fn(move |request| {
        let (state, peer, allowance) = (state.clone(), peer.clone(), allowance.clone());
        async move {
            let answer = chain::serve(state, peer, request).await?;
            allowance.set(answer.body().deadline());
            Ok::<_, TooManyAnswers>(answer)
        }
    });
    let mut builder = http2::Builder::new(requests.inbox());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let (gathering, gather) = gather(stream);
    let connection = builder.serve_connection(TokioIo::new(gathering), service);
    tokio::pin!(connection);
    let mut idle_check = tokio::time::interval_at(tokio::time::Instant::now() + idle_every, idle_every);
    idle_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            outcome = drive(connection.as_mut(), &mut requests, &gather) => return outcome,
            () = closing.cancelled() => break,
            _ = idle_check.tick() => if requests.is_idle() { break },
        }
    }
    connection.as_mut().graceful_shutdown();
    drive(connection, &mut requests, &gather).await
}
