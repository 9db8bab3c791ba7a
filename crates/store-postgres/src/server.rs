//! Sessions with the server: made when needed, checked before they are used, given up when they do not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::tls::NoTls;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Row, Statement};

use crate::error::PostgresError;
use crate::options::{JournalOptions, OptionsError};
use crate::sql::{FORMAT, Sql};
use crate::tls::Tls;

/// The oldest that is tested: 13.
const VERSION_MIN: i32 = 130_000;
/// Between tries.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// What a session may take to be made, beside the connection.
const GREETING: Duration = Duration::from_secs(3);

/// What the server tells without being asked: the text of a notification, or `None` when the session is over.
pub(crate) type Hear = Arc<dyn Fn(Option<&str>) + Send + Sync>;

pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

pub(crate) struct Server {
    config: Config,
    tls: Option<Tls>,
    pub(crate) sql: Sql,
    pub(crate) options: JournalOptions,
    is_warned: AtomicBool,
}

/// A session that has been checked.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) append: Statement,
    pub(crate) end: Statement,
    pub(crate) page: Statement,
    driver: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nobody waits for an answer any more: a server that does not answer is not waited for.
        self.driver.abort();
    }
}

impl Server {
    pub(crate) fn new(options: JournalOptions) -> Result<Server, OptionsError> {
        options.check()?;
        let tls = match &options.identity {
            Some(identity) => Some(Tls::new(identity.client_config().map_err(OptionsError::Certificates)?)),
            None => None,
        };
        let (config, sql) = (options.connecting(), Sql::new(&options.schema));
        Ok(Server { config, tls, sql, options, is_warned: AtomicBool::new(false) })
    }

    /// A new session. `hear` is told what the server says by itself. Statements of this session end after `statement_timeout`.
    pub(crate) async fn connect(
        &self,
        hear: Option<Hear>,
        statement_timeout: Duration,
        deadline: Instant,
    ) -> Result<Session, PostgresError> {
        let hosts = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX);
        let deadline = deadline.min(Instant::now() + self.options.connect_timeout * hosts + GREETING);
        let connected = tokio::time::timeout_at(deadline, self.connect_checked(hear, statement_timeout));
        connected.await.unwrap_or_else(|_| Err(PostgresError::Unreachable("no connection in time".into())))
    }

    async fn connect_checked(
        &self,
        hear: Option<Hear>,
        statement_timeout: Duration,
    ) -> Result<Session, PostgresError> {
        let (client, driver) = match &self.tls {
            Some(tls) => {
                let connected = self.config.connect(tls.clone()).await;
                let (client, connection) = connected.map_err(PostgresError::of_connecting)?;
                (client, drive(connection, hear))
            }
            None => {
                let (client, connection) =
                    self.config.connect(NoTls).await.map_err(PostgresError::of_connecting)?;
                (client, drive(connection, hear))
            }
        };
        let driver = Guard(Some(driver));
        self.greet(&client, statement_timeout).await?;
        let prepared = tokio::try_join!(
            client.prepare(&self.sql.append),
            client.prepare(&self.sql.end),
            client.prepare(&self.sql.page)
        );
        let (append, end, page) = prepared.map_err(PostgresError::of_connecting)?;
        Ok(Session { client, append, end, page, driver: driver.keep() })
    }

    /// Finds out whom we speak with, and says how.
    async fn greet(&self, client: &Client, statement_timeout: Duration) -> Result<(), PostgresError> {
        let connecting = PostgresError::of_connecting;
        let row = client.query_one(&self.sql.greeting(), &[]).await.map_err(connecting)?;
        let (version, commit, fsync): (i32, &str, &str) = (row.get(0), row.get(1), row.get(2));
        if version < VERSION_MIN {
            let what = format!("it is version {version}, and 13 is the oldest that can be used");
            return Err(PostgresError::Refused(what.into()));
        }
        if fsync == "off" && !self.is_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "PostgreSQL runs with fsync=off: what it has acknowledged may be lost with its machine"
            );
        }
        // What is acknowledged must be durable, whatever others who use the server are content with.
        let is_durable = !matches!(commit, "off" | "local");
        let commit = if is_durable { "" } else { "SET synchronous_commit = on;" };
        let timeout = statement_timeout.as_millis();
        let lock_timeout = statement_timeout.min(self.options.call_timeout).as_millis();
        let settings = format!(
            "SET statement_timeout = {timeout}; SET lock_timeout = {lock_timeout}; \
             SET idle_in_transaction_session_timeout = {timeout}; \
             SET default_transaction_isolation = 'read committed'; {commit} SET client_encoding = 'UTF8'"
        );
        client.batch_execute(&settings).await.map_err(connecting)?;
        let (has_schema, has_tables): (bool, bool) = (row.get(3), row.get(4));
        if !has_tables {
            let identity = uuid::Uuid::new_v4().to_string();
            client.batch_execute(&self.sql.create(has_schema, &identity)).await.map_err(connecting)?;
        }
        let format = format!("SELECT format FROM {}.state", self.sql.schema);
        let format: i32 = client.query_one(&format, &[]).await.map_err(connecting)?.get(0);
        if format != FORMAT {
            let what = format!("its tables have format {format}: they were written by a newer polder");
            return Err(PostgresError::Refused(what.into()));
        }
        Ok(())
    }
}

/// Ends a driver whose session is not finished.
struct Guard(Option<AbortHandle>);

impl Guard {
    fn keep(mut self) -> AbortHandle {
        self.0.take().expect("it is taken once, here")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(driver) = &self.0 {
            driver.abort();
        }
    }
}

/// Reads and writes for a session until it ends.
fn drive<S, T>(mut connection: Connection<S, T>, hear: Option<Hear>) -> AbortHandle
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let driving = async move {
        loop {
            let said = std::future::poll_fn(|context| connection.poll_message(context)).await;
            match (said, &hear) {
                (Some(Ok(AsyncMessage::Notification(heard))), Some(hear)) => hear(Some(heard.payload())),
                (Some(Ok(AsyncMessage::Notice(notice))), _) => {
                    tracing::debug!(notice = notice.message(), "PostgreSQL says something");
                }
                (Some(Ok(_)), _) => {}
                (Some(Err(_)) | None, _) => break,
            }
        }
        if let Some(hear) = hear {
            hear(None);
        }
    };
    Handle::current().spawn(driving).abort_handle()
}

/// One session for questions of one kind, made again when it is lost.
pub(crate) struct Link {
    pub(crate) server: Arc<Server>,
    /// Held while connecting, so that there is one.
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
}

impl Link {
    pub(crate) fn new(server: Arc<Server>) -> Link {
        Link { server, session: tokio::sync::Mutex::new(None) }
    }

    async fn session(&self, deadline: Instant) -> Result<Arc<Session>, PostgresError> {
        let mut own = self.session.lock().await;
        if let Some(session) = own.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(session.clone());
        }
        *own = None;
        let session = Arc::new(self.server.connect(None, self.server.options.call_timeout, deadline).await?);
        *own = Some(session.clone());
        Ok(session)
    }

    async fn give_up(&self, session: &Arc<Session>) {
        let mut own = self.session.lock().await;
        if own.as_ref().is_some_and(|own| Arc::ptr_eq(own, session)) {
            *own = None;
        }
    }

    /// Says something once.
    pub(crate) async fn once(
        &self,
        what: &What<'_>,
        params: Params<'_>,
        deadline: Instant,
    ) -> Result<Vec<Row>, PostgresError> {
        let session = tokio::time::timeout_at(deadline, self.session(deadline)).await;
        let session =
            session.unwrap_or_else(|_| Err(PostgresError::Unreachable("no connection in time".into())))?;
        let deadline = deadline.min(Instant::now() + self.server.options.call_timeout);
        let answered = tokio::time::timeout_at(deadline, what.ask(&session, params)).await;
        let answered = match answered {
            Ok(answered) => answered.map_err(PostgresError::of_statement),
            Err(_) => Err(PostgresError::late()),
        };
        // What is busy may be so because it takes no writes any more.
        if matches!(&answered, Err(PostgresError::Unknown(_) | PostgresError::Busy(_))) {
            self.give_up(&session).await;
        }
        answered
    }

    /// Says something that may be said any number of times, until it is answered.
    pub(crate) async fn patiently(
        &self,
        what: &What<'_>,
        params: Params<'_>,
        deadline: Instant,
    ) -> Result<Vec<Row>, PostgresError> {
        loop {
            match self.once(what, params, deadline).await {
                Err(error) if error.is_passing() && Instant::now() + PAUSE < deadline => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "PostgreSQL is asked again");
                    tokio::time::sleep(PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }
}

/// What is said.
pub(crate) enum What<'a> {
    Append,
    End,
    Text(&'a str),
}

impl What<'_> {
    async fn ask(&self, session: &Session, params: Params<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        match self {
            What::Append => session.client.query(&session.append, params).await,
            What::End => session.client.query(&session.end, params).await,
            What::Text(text) => session.client.query(*text, params).await,
        }
    }
}
