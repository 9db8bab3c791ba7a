//! Verbs on paths.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use polder_model::Value;

use crate::answer::{Answer, Lines, warnings};
use crate::body::{RequestBody, Upload};
use crate::connection::{Connections, Sender};
use crate::error::{ApiError, ClientError};
use crate::kubeconfig::{Access, Kubeconfig};

const JSON: &str = "application/json";
const USER_AGENT: &str = concat!("polder/", env!("CARGO_PKG_VERSION"));
/// Objects asked for at once while listing.
const PAGE_LEN: usize = 2_000;
/// How often a request that was not sent is tried on another connection.
const ATTEMPTS_MAX: usize = 3;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// For a connection to be there.
    pub dial_patience: Duration,
    /// For a whole answer; for the next piece of a stream that does not idle.
    pub patience: Duration,
    /// For the answer to an upload, which comes when all of it has been read.
    pub upload_patience: Duration,
    /// Of an answer that is read whole.
    pub answer_bytes_max: usize,
    /// HTTP/2 connections that requests take turns on.
    pub connections: usize,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            dial_patience: Duration::from_secs(10),
            patience: Duration::from_secs(60),
            upload_patience: Duration::from_secs(3600),
            answer_bytes_max: 256 << 20,
            connections: 1,
        }
    }
}

/// A client of one server, as one user. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    connections: Connections,
    options: ClientOptions,
    /// `https://host:port`.
    origin: String,
    /// What the server's URL has behind its origin, in front of every path.
    prefix: String,
    headers: HeaderMap,
    whom: String,
}

impl Client {
    /// A client for a context of a kubeconfig; `None` is the current one. Connects on first use.
    pub fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Client, ClientError> {
        Client::new(&Kubeconfig::read(path)?.access(context)?, ClientOptions::default())
    }

    pub fn new(access: &Access, options: ClientOptions) -> Result<Client, ClientError> {
        let connections = Connections::new(access, options)?;
        let scheme_end = access.server.find("://").map_or(0, |at| at + 3);
        let host_end = access.server[scheme_end..].find('/').map(|at| scheme_end + at);
        let (origin, prefix) = access.server.split_at(host_end.unwrap_or(access.server.len()));
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(JSON));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        if let Ok(host) = HeaderValue::from_str(&origin[scheme_end..]) {
            headers.insert(header::HOST, host);
        }
        if let Some(token) = &access.token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| ClientError::BadPath("the kubeconfig's token".into()))?;
            bearer.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, bearer);
        }
        let (origin, prefix) = (origin.to_string(), prefix.to_string());
        let whom = access.whom.clone();
        Ok(Client { inner: Arc::new(Inner { connections, options, origin, prefix, headers, whom }) })
    }

    /// The server's URL, as the kubeconfig has it.
    pub fn url(&self) -> &str {
        &self.inner.connections.url
    }

    /// As whom it asks, for people.
    pub fn whom(&self) -> &str {
        &self.inner.whom
    }

    /// Gets a document.
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.json(Method::GET, path, None).await
    }

    /// Gets every object of a collection, page by page.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, ClientError> {
        let mut items = Vec::new();
        let mut token = String::new();
        let separator = if path.contains('?') { '&' } else { '?' };
        loop {
            let page = format!("{path}{separator}limit={PAGE_LEN}&continue={}", encode(&token));
            let mut page = self.get(&page).await?;
            if let Some(Value::Array(found)) = page.remove_at(&["items"]) {
                items.extend(found);
            }
            match page.str_at(&["metadata", "continue"]) {
                Some(next) if !next.is_empty() => token = next.to_string(),
                _ => return Ok(items),
            }
        }
    }

    /// Posts an object to its collection.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ClientError> {
        self.json(Method::POST, path, Some(object)).await
    }

    /// Puts an object in the place of another.
    pub async fn update(&self, path: &str, object: &Value) -> Result<Value, ClientError> {
        self.json(Method::PUT, path, Some(object)).await
    }

    /// Patches an object; `media` says how the patch is to be read: `application/merge-patch+json`.
    pub async fn patch(&self, path: &str, media: &str, patch: &Value) -> Result<Value, ClientError> {
        let body = Bytes::from(patch.to_vec());
        self.send(Method::PATCH, path, Some((media, body))).await?.checked()?.json(self.url())
    }

    pub async fn delete(&self, path: &str) -> Result<Value, ClientError> {
        self.json(Method::DELETE, path, None).await
    }

    /// Any method, a JSON body or none; a refusal is an error.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, ClientError> {
        let body = body.map(|value| (JSON, Bytes::from(value.to_vec())));
        self.send(method, path, body).await?.checked()
    }

    /// Any method, any body with its media type; a refusal is an answer like any other.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Bytes)>,
    ) -> Result<Answer, ClientError> {
        let (media, body) = match body {
            Some((media, bytes)) => (Some(media), Some(bytes)),
            None => (None, None),
        };
        let request = self.build(method, path, media, RequestBody::Whole(body))?;
        self.answer_within(self.inner.options.patience, request).await
    }

    /// A request whose body is made while it is sent. Feed the upload and await the answer at the same time.
    pub fn upload(
        &self,
        method: Method,
        path: &str,
        media: &str,
    ) -> (Upload, impl Future<Output = Result<Answer, ClientError>> + use<>) {
        let (upload, body) = RequestBody::pieces();
        let request = self.build(method, path, Some(media), body);
        let client = self.clone();
        let answer = async move {
            client.answer_within(client.inner.options.upload_patience, request?).await?.checked()
        };
        (upload, answer)
    }

    /// A watch: lines for as long as the server sends any. No deadline between two lines.
    pub async fn watch(&self, path: &str) -> Result<Lines, ClientError> {
        self.lines(path, None).await
    }

    /// A document of lines, read as it comes.
    pub async fn stream(&self, path: &str) -> Result<Lines, ClientError> {
        self.lines(path, Some(self.inner.options.patience)).await
    }

    async fn lines(&self, path: &str, idle: Option<Duration>) -> Result<Lines, ClientError> {
        let request = self.build(Method::GET, path, None, RequestBody::Whole(None))?;
        let patience = self.inner.options.patience;
        let sent = tokio::time::timeout(patience, self.head(request)).await;
        let (response, sender) = sent.map_err(|_| self.timed_out(patience))??;
        if response.status().is_client_error() || response.status().is_server_error() {
            let code = response.status().as_u16();
            let body = self.whole(response.into_body());
            let body = tokio::time::timeout(patience, body).await.map_err(|_| self.timed_out(patience))??;
            return Err(ApiError::read(code, &body).into());
        }
        Ok(Lines::new(self.url().into(), response.into_body(), sender, idle))
    }

    async fn json(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        self.request(method, path, body).await?.json(self.url())
    }

    fn build(
        &self,
        method: Method,
        path: &str,
        media: Option<&str>,
        body: RequestBody,
    ) -> Result<Request<RequestBody>, ClientError> {
        let bad = || ClientError::BadPath(path.into());
        if !path.starts_with('/') {
            return Err(bad());
        }
        let uri: Uri =
            format!("{}{}{path}", self.inner.origin, self.inner.prefix).parse().map_err(|_| bad())?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.inner.headers.clone();
        if let Some(media) = media {
            let media = HeaderValue::from_str(media).map_err(|_| bad())?;
            request.headers_mut().insert(header::CONTENT_TYPE, media);
        }
        Ok(request)
    }

    async fn answer_within(
        &self,
        patience: Duration,
        request: Request<RequestBody>,
    ) -> Result<Answer, ClientError> {
        let work = async {
            let (response, sender) = self.head(request).await?;
            let (status, warnings) = (response.status().as_u16(), warnings(response.headers()));
            let body = self.whole(response.into_body()).await?;
            if let Sender::Http1(sender) = sender {
                self.inner.connections.give_back(sender);
            }
            Ok(Answer { status, body, warnings })
        };
        tokio::time::timeout(patience, work).await.map_err(|_| self.timed_out(patience))?
    }

    /// Sends a request; again on another connection if this one turns out to be closed before anything was sent.
    async fn head(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Sender), ClientError> {
        let uri = request.uri().clone();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut sender = self.inner.connections.sender().await?;
            *request.uri_mut() = uri.clone();
            fit(&mut request, &sender);
            match sender.send(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(unsent) => match unsent.request {
                    Some(whole) if attempt < ATTEMPTS_MAX => request = *whole,
                    _ => {
                        let (url, source) = (self.url().into(), Box::new(unsent.error));
                        return Err(ClientError::Interrupted { url, source });
                    }
                },
            }
        }
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, ClientError> {
        let bytes_max = self.inner.options.answer_bytes_max;
        match Limited::new(body, bytes_max).collect().await {
            Ok(whole) => Ok(whole.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(ClientError::TooLarge { url: self.url().into(), bytes_max })
            }
            Err(source) => Err(ClientError::Interrupted { url: self.url().into(), source }),
        }
    }

    fn timed_out(&self, patience: Duration) -> ClientError {
        ClientError::TimedOut { url: self.url().into(), patience }
    }
}

/// HTTP/2 names the server in the URI, HTTP/1.1 in a header.
fn fit(request: &mut Request<RequestBody>, sender: &Sender) {
    match sender {
        Sender::Http2(_) => drop(request.headers_mut().remove(header::HOST)),
        Sender::Http1(_) => {
            let authority = request.uri().authority().map(|authority| authority.as_str().to_string());
            if let Some(Ok(host)) = authority.map(|authority| HeaderValue::from_str(&authority)) {
                request.headers_mut().insert(header::HOST, host);
            }
            let path = request.uri().path_and_query().cloned();
            if let Some(path) = path {
                *request.uri_mut() = Uri::from(path);
            }
        }
    }
}

/// Percent-encodes text for a query.
pub(crate) fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_put_together() {
        let rows = [
            ("https://h:6443", "/api", Some("https://h:6443/api")),
            ("https://h/clusters/a", "/api?x=1", Some("https://h/clusters/a/api?x=1")),
            ("https://[::1]:9", "/", Some("https://[::1]:9/")),
            ("https://h", "api", None),
            ("https://h", "/a b", None),
        ];
        for (server, path, expected) in rows {
            let access = Access { server: server.into(), insecure: true, ..Access::default() };
            let client = Client::new(&access, ClientOptions::default()).unwrap();
            let request = client.build(Method::GET, path, None, RequestBody::Whole(None));
            assert_eq!(request.ok().map(|request| request.uri().to_string()).as_deref(), expected);
        }
        assert_eq!(encode("a=/é"), "a%3D%2F%C3%A9");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named() {
        let access = Access { server: "https://127.0.0.1:1".into(), insecure: true, ..Access::default() };
        let client = Client::new(&access, ClientOptions::default()).unwrap();
        let error = client.get("/version").await.unwrap_err();
        assert_eq!(error.to_string(), "cannot reach https://127.0.0.1:1: is the server running?");
    }
}
