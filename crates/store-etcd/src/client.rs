//! A thin client of etcd: a call is made to one member, and whoever calls knows what may have become of it.
//!
//! Members take turns when one cannot be reached or does not answer. Reads are tried until their time is up; changes are tried
//! once, because only their caller knows how to find out about one that may have been made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use polder_client_http::grpc::{
    Call, Channel, Endpoint, EndpointError, GrpcError, Identity, Messages, Outgoing,
};
use tokio::time::Instant;

use crate::error::EtcdError;
use crate::wire::{self, Compare, Lease, Operation, Range, RangeAnswer, TxnAnswer, WatchAnswer};

/// etcd's own bound is on requests; operators may have raised it.
pub(crate) const ANSWER_LEN_MAX: usize = 64 << 20;
/// Between tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Where etcd is and who we are to it. Has secrets, so it is not shown.
#[derive(Clone)]
pub struct ClientOptions {
    /// `https://host:port` of each member, or `http://host:port`.
    pub endpoints: Vec<String>,
    pub identity: Identity,
    /// User and password.
    pub user: Option<(String, String)>,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long to wait for one answer.
    pub call_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            endpoints: Vec::new(),
            identity: Identity::default(),
            user: None,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
        }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error("no member of etcd is named")]
    NoEndpoint,
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

pub struct Client {
    options: ClientOptions,
    endpoints: Vec<Endpoint>,
    /// Whose turn it is.
    turn: AtomicUsize,
    /// The connection of calls. Held while dialing, so that there is one.
    open: tokio::sync::Mutex<Option<(usize, Arc<Channel>)>>,
    token: Mutex<Option<Arc<str>>>,
}

impl Client {
    pub fn new(options: ClientOptions) -> Result<Client, OptionsError> {
        let endpoints = options.endpoints.iter().map(|url| Endpoint::new(url, &options.identity));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(OptionsError::NoEndpoint);
        }
        Ok(Client {
            options,
            endpoints,
            turn: AtomicUsize::new(0),
            open: tokio::sync::Mutex::new(None),
            token: Mutex::new(None),
        })
    }

    /// What a range holds; tried until the deadline.
    pub async fn range(&self, range: &Range<'_>, deadline: Instant) -> Result<RangeAnswer, EtcdError> {
        let message = wire::range(range);
        self.patiently("etcdserverpb.KV/Range", &message, deadline, wire::parse_range).await
    }

    /// Tried once.
    pub async fn txn(
        &self,
        compares: &[Compare<'_>],
        then: &[Operation<'_>],
        or_else: &[Operation<'_>],
        deadline: Instant,
    ) -> Result<TxnAnswer, EtcdError> {
        self.txn_message(&wire::txn(compares, then, or_else), deadline).await
    }

    /// The same, with a transaction that is written already.
    pub(crate) async fn txn_message(
        &self,
        message: &[u8],
        deadline: Instant,
    ) -> Result<TxnAnswer, EtcdError> {
        self.once("etcdserverpb.KV/Txn", message, deadline, wire::parse_txn).await
    }

    /// Lets etcd forget what was overwritten before a revision. Forgetting it twice is no error.
    pub async fn compact(&self, revision: u64, deadline: Instant) -> Result<(), EtcdError> {
        let message = wire::number(revision);
        match self.once("etcdserverpb.KV/Compact", &message, deadline, |_| Some(())).await {
            Err(EtcdError::Compacted) => Ok(()),
            outcome => outcome,
        }
    }

    pub async fn grant(&self, ttl: u64, deadline: Instant) -> Result<Lease, EtcdError> {
        let message = wire::number(ttl);
        let parse = |message: &Bytes| wire::parse_lease(message);
        self.once("etcdserverpb.Lease/LeaseGrant", &message, deadline, parse).await
    }

    pub async fn revoke(&self, lease: u64, deadline: Instant) -> Result<(), EtcdError> {
        let message = wire::number(lease);
        self.once("etcdserverpb.Lease/LeaseRevoke", &message, deadline, |_| Some(())).await
    }

    /// Renews a lease; with no time left in the answer when it is gone.
    pub async fn keep_alive(&self, lease: u64, deadline: Instant) -> Result<Lease, EtcdError> {
        let message = wire::number(lease);
        let (at, channel) = self.channel(deadline).await?;
        let token = self.token(&channel, at, deadline).await;
        let token = self.judged(at, token).await?;
        let metadata = metadata(token.as_deref());
        let call = self.call_of("etcdserverpb.Lease/LeaseKeepAlive", &metadata, &message, deadline);
        let answered = async {
            let (_outgoing, mut messages) = channel.stream(call).await?;
            messages.next().await
        };
        let answered = tokio::time::timeout_at(deadline, answered).await.unwrap_or(Err(GrpcError::Timeout));
        let url = self.endpoints[at].url();
        let parsed = answered
            .map_err(|error| EtcdError::of(url, error))
            .and_then(|message| message.ok_or_else(|| EtcdError::Answer { url: url.to_owned() }))
            .and_then(|message| {
                wire::parse_lease(&message).ok_or_else(|| EtcdError::Answer { url: url.to_owned() })
            });
        self.judged(at, parsed).await
    }

    /// Watches what is put into a range from a revision on, on a connection of its own.
    pub async fn watch(
        &self,
        key: &[u8],
        end: &[u8],
        from: u64,
        deadline: Instant,
    ) -> Result<Watching, EtcdError> {
        let at = self.turn.load(Ordering::Relaxed) % self.endpoints.len();
        let endpoint = &self.endpoints[at];
        let begun = async {
            let url = endpoint.url();
            let channel = Channel::connect(endpoint, self.options.connect_timeout).await;
            let channel = channel.map_err(|error| EtcdError::of(url, error))?;
            let token = self.token(&channel, at, deadline).await?;
            let mut metadata = metadata(token.as_deref());
            // A member that has no leader ends the stream instead of saying nothing.
            metadata.push(("hasleader", "true"));
            let message = wire::watch(key, end, from);
            let call = self.call_of("etcdserverpb.Watch/Watch", &metadata, &message, deadline);
            let (outgoing, messages) =
                channel.stream(call).await.map_err(|error| EtcdError::of(url, error))?;
            Ok(Watching { url: url.to_owned(), _channel: channel, _outgoing: outgoing, messages })
        };
        let begun = tokio::time::timeout_at(deadline, begun).await;
        let late = |_| Err(EtcdError::Unknown { url: endpoint.url().to_owned(), source: GrpcError::Timeout });
        let begun = begun.unwrap_or_else(late);
        self.judged(at, begun).await
    }

    /// Asks again and again, one member after the other.
    async fn patiently<T>(
        &self,
        method: &str,
        message: &[u8],
        deadline: Instant,
        parse: impl Fn(&Bytes) -> Option<T>,
    ) -> Result<T, EtcdError> {
        loop {
            match self.once(method, message, deadline, &parse).await {
                Err(error) if error.is_of_member() && Instant::now() + PAUSE < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn once<T>(
        &self,
        method: &str,
        message: &[u8],
        deadline: Instant,
        parse: impl Fn(&Bytes) -> Option<T>,
    ) -> Result<T, EtcdError> {
        let mut renewed = false;
        loop {
            let (at, channel) = self.channel(deadline).await?;
            let url = self.endpoints[at].url();
            let token = self.token(&channel, at, deadline).await;
            let token = self.judged(at, token).await?;
            let metadata = metadata(token.as_deref());
            let called = channel.call(self.call_of(method, &metadata, message, deadline)).await;
            let parsed = called
                .map_err(|error| EtcdError::of(url, error))
                .and_then(|message| parse(&message).ok_or_else(|| EtcdError::Answer { url: url.to_owned() }));
            // Tokens end, and nothing was done for one that has: another one is asked for, once.
            if matches!(parsed, Err(EtcdError::Auth { .. })) && token.is_some() && !renewed {
                renewed = true;
                self.forget_token();
                continue;
            }
            return self.judged(at, parsed).await;
        }
    }

    fn call_of<'a>(
        &self,
        method: &'a str,
        metadata: &'a [(&'static str, &'a str)],
        message: &'a [u8],
        deadline: Instant,
    ) -> Call<'a> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = left.min(self.options.call_timeout);
        Call { method, metadata, message, timeout, answer_len_max: ANSWER_LEN_MAX }
    }

    /// The connection of calls: what is open, or another.
    async fn channel(&self, deadline: Instant) -> Result<(usize, Arc<Channel>), EtcdError> {
        let mut open = self.open.lock().await;
        if let Some((at, channel)) = open.as_ref().filter(|(_, channel)| !channel.is_closed()) {
            return Ok((*at, channel.clone()));
        }
        let at = self.turn.load(Ordering::Relaxed) % self.endpoints.len();
        let left = deadline.saturating_duration_since(Instant::now());
        let connected = Channel::connect(&self.endpoints[at], left.min(self.options.connect_timeout)).await;
        match connected {
            Ok(channel) => {
                let channel = Arc::new(channel);
                *open = Some((at, channel.clone()));
                Ok((at, channel))
            }
            Err(error) => {
                *open = None;
                self.turn.store(at + 1, Ordering::Relaxed);
                Err(EtcdError::of(self.endpoints[at].url(), error))
            }
        }
    }

    /// Asks for another token before the next call.
    pub(crate) fn forget_token(&self) {
        *self.token.lock() = None;
    }

    /// Turns to another member when this one did not do, and to another token when it knows ours no longer.
    async fn judged<T>(&self, at: usize, outcome: Result<T, EtcdError>) -> Result<T, EtcdError> {
        if matches!(outcome, Err(EtcdError::Auth { .. })) {
            self.forget_token();
        }
        if outcome.as_ref().is_err_and(EtcdError::is_of_member) {
            let mut open = self.open.lock().await;
            if open.as_ref().is_none_or(|(own, _)| *own == at) {
                *open = None;
                self.turn.store(at + 1, Ordering::Relaxed);
            }
        }
        outcome
    }

    /// Proof of who we are, when we are somebody.
    async fn token(
        &self,
        channel: &Channel,
        at: usize,
        deadline: Instant,
    ) -> Result<Option<Arc<str>>, EtcdError> {
        let Some((user, password)) = &self.options.user else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token));
        }
        let message = wire::authenticate(user, password);
        let called =
            channel.call(self.call_of("etcdserverpb.Auth/Authenticate", &[], &message, deadline)).await;
        let url = self.endpoints[at].url();
        let token = match called {
            Ok(message) => {
                wire::parse_token(&message).ok_or(EtcdError::Auth { message: "no token".into() })?
            }
            // Who asks for a token has changed nothing.
            Err(source @ GrpcError::Status { .. }) => match EtcdError::of(url, source) {
                EtcdError::Refused { message, .. } => return Err(EtcdError::Auth { message }),
                EtcdError::Unknown { url, source } => return Err(EtcdError::Unreachable { url, source }),
                error => return Err(error),
            },
            Err(source) => return Err(EtcdError::Unreachable { url: url.to_owned(), source }),
        };
        let token: Arc<str> = token.into();
        *self.token.lock() = Some(token.clone());
        Ok(Some(token))
    }
}

fn metadata(token: Option<&str>) -> Vec<(&'static str, &str)> {
    token.map(|token| ("token", token)).into_iter().collect()
}

/// A watch that has begun.
pub struct Watching {
    url: String,
    _channel: Channel,
    _outgoing: Outgoing,
    messages: Messages,
}

impl Watching {
    /// What happens next. Has no deadline: a connection that is dead is noticed by what keeps it alive.
    pub async fn next(&mut self) -> Result<WatchAnswer, EtcdError> {
        let url = &self.url;
        let message = self.messages.next().await.map_err(|error| EtcdError::of(url, error))?;
        let ended = || EtcdError::Unknown {
            url: url.clone(),
            source: GrpcError::Protocol("the watch has ended".into()),
        };
        let message = message.ok_or_else(ended)?;
        wire::parse_watch(&message).ok_or_else(|| EtcdError::Answer { url: url.clone() })
    }
}
