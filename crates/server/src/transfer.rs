//! Planes in and out over HTTP: lines of JSON, streamed both ways. What the lines say is the registry's business.
//!
//! A body of lines may be as large as it likes; what is held of it at one time is one line, and a client that
//! stops sending is not waited for.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use polder_model::Status;
use polder_registry::Target;
use polder_registry::transfer::{Export, LINE_BYTES_MAX, MEDIA};

use crate::State;
use crate::answer::{self, Answer, Style};
use crate::body::AnswerBody;
use crate::handler::Call;

/// How long the next piece of an import may take.
const PIECE_PATIENCE: Duration = Duration::from_secs(60);

struct Outgoing {
    state: Arc<State>,
    export: Export,
    /// The first piece, made before anything was answered, so that early failures have a code.
    first: Option<Bytes>,
    over: bool,
}

pub(crate) async fn export(call: Call, target: &Target) -> Result<Answer, Status> {
    let mut export = call.state.registry.export(&call.context, target).await?;
    let first = export.next().await?;
    let mut outgoing = Outgoing { state: call.state, export, first, over: false };
    let body = AnswerBody::stream(|pieces| async move {
        while let Some(piece) = outgoing.piece().await {
            pieces.send(piece).await;
        }
        Ok(())
    });
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA));
    Ok(answer)
}

impl Outgoing {
    async fn piece(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let next = tokio::select! {
            () = self.state.stopping.cancelled() => Err(Status::unavailable("the server is shutting down")),
            next = self.export.next() => next,
        };
        next.unwrap_or_else(|status| {
            // Too late for a code: the last line says why it is the last.
            self.over = true;
            let mut line = status.to_value().to_vec();
            line.push(b'\n');
            Some(line.into())
        })
    }
}

pub(crate) async fn import(mut call: Call, target: &Target, style: Style) -> Result<Answer, Status> {
    let media = call.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = media.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media != MEDIA {
        return Err(Status::unsupported_media_type(&[MEDIA]));
    }
    let body = call
        .body
        .take()
        .and_then(|body| body.take())
        .ok_or_else(|| Status::bad_request("the body is empty"))?;
    let mut import = call.state.registry.import(call.context.clone(), target).await?;
    let mut lines = IncomingLines { body, waiting: BytesMut::new(), seen: 0 };
    loop {
        let line = tokio::select! {
            () = call.state.stopping.cancelled() => Err(Status::unavailable("the server is shutting down")),
            line = lines.next() => line,
        };
        match line {
            Ok(Some(line)) => import.line(&line).await?,
            Ok(None) => break,
            Err(status) => return Err(import.fail(status).await),
        }
    }
    let summary = import.finish().await?;
    Ok(answer::value(StatusCode::CREATED, &summary, style))
}

/// A request body, line by line. Looks at every byte once.
struct IncomingLines {
    body: hyper::body::Incoming,
    waiting: BytesMut,
    seen: usize,
}

impl IncomingLines {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(at) = self.waiting[self.seen..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.waiting.split_to(self.seen + at + 1);
                self.seen = 0;
                line.truncate(line.len() - 1);
                return Ok(Some(line.freeze()));
            }
            self.seen = self.waiting.len();
            if self.waiting.len() > LINE_BYTES_MAX {
                return Err(Status::too_large(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
            }
            let frame = tokio::time::timeout(PIECE_PATIENCE, self.body.frame()).await;
            match frame.map_err(|_| Status::timeout("the next line did not come in time"))? {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.waiting.extend_from_slice(&piece);
                    }
                }
                Some(Err(_)) => return Err(Status::bad_request("the request body ended early")),
                None if self.waiting.is_empty() => return Ok(None),
                None => {
                    self.seen = 0;
                    return Ok(Some(self.waiting.split().freeze()));
                }
            }
        }
    }
}
