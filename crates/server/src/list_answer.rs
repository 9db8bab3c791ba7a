//! Lists as answers, in every form: written piece by piece as the client takes them, from pages that are read as
//! they are needed. An answer holds a page and a piece in memory, whatever the length of the list and the patience
//! of the client; other requests get a turn between the pieces.
//!
//! What fits in one piece is sent whole, with its length. A longer list that cannot be finished (its state was
//! forgotten, its time is up) breaks off, so that no client takes a part for the whole.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use polder_machinery::protobuf::envelope::ListMessage;
use polder_model::Status;
use polder_registry::Target;
use polder_registry::behavior::Print;
use polder_registry::listing::{Listing, Objects};
use polder_store::StoredObject;
use tokio::time::Instant;

use crate::answer::{self, Answer, GZIP_BYTES_MIN, Style};
use crate::body::{AnswerBody, BrokenOff, Pieces};
use crate::handler::Call;
use crate::list_layout::Layout;
use crate::negotiate::{Form, Media};
use crate::present::{Presenter, list_meta};
use crate::table::IncludeObject;

/// Pieces are about this long: two frames of HTTP/2.
const PIECE_LEN: usize = 32 * 1024;
/// Bytes copied, or a quarter as many parsed, before others get a turn.
const TURN_BYTES: usize = 256 * 1024;
/// How often an answer that waits for its plane's other answers to be taken looks again.
const ROOM_PATIENCE: Duration = Duration::from_millis(20);

/// One list on its way out.
struct Writing {
    call: Call,
    target: Target,
    form: Form,
    style: Style,
    include: IncludeObject,
    /// One moment for all ages.
    print: Print,
    deadline: Instant,
    objects: Objects,
    page: std::vec::IntoIter<Arc<StoredObject>>,
    layout: Layout,
    message: Option<ListMessage<'static>>,
    /// Work since others had a turn.
    turn: usize,
    over: bool,
}

/// Answers with a list.
pub(crate) async fn answer(
    call: Call,
    target: Target,
    form: Form,
    style: Style,
    list: Listing,
) -> Result<Answer, Status> {
    let presenter = call.presenter(&target, form, style)?;
    let (include, print) = (presenter.include, presenter.print());
    let meta = list_meta(&list);
    let (layout, message) = if style.media == Media::Protobuf {
        let (frame, message) = presenter.list_message(meta)?;
        let len = measured(&presenter, message, list.objects.clone()).await?;
        (Layout::message(&frame, message, len), Some(message))
    } else {
        let (key, frame) = presenter.list_frame(meta);
        (Layout::text(key, frame, style)?, None)
    };
    let mut out = Vec::with_capacity(PIECE_LEN);
    layout.write_head(&mut out);
    let mut writing = Writing {
        deadline: call.deadline,
        call,
        target,
        form,
        style,
        include,
        print,
        objects: list.objects,
        page: Vec::new().into_iter(),
        layout,
        message,
        turn: 0,
        over: false,
    };
    // Only what is longer than this is compressed, so it must be known before anything is sent.
    writing.write(&mut out, GZIP_BYTES_MIN).await?;
    if writing.over {
        return Ok(answer::whole(StatusCode::OK, out, style));
    }
    let zipped = style.gzip;
    Ok(answer::with_body(AnswerBody::stream(|pieces| writing.send(out, pieces)), style.media, zipped))
}

/// What the items take as messages: their length stands in front of them.
async fn measured(
    presenter: &Presenter<'_>,
    message: ListMessage<'static>,
    mut objects: Objects,
) -> Result<u64, Status> {
    let (mut len, mut turn) = (0, 0);
    let mut out = Vec::new();
    loop {
        let page = objects.page().await?;
        if page.is_empty() {
            return Ok(len);
        }
        for stored in &page {
            out.clear();
            presenter.item_message(stored, message, &mut out)?;
            len += out.len() as u64;
            turn += stored.record.len() * 4;
            if turn > TURN_BYTES {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Writing {
    /// Writes until there is at least so much, or everything.
    async fn write(&mut self, out: &mut Vec<u8>, len: usize) -> Result<(), Status> {
        while out.len() <= len && !self.over {
            let Some(stored) = self.page.next() else {
                self.page = self.objects.page().await?.into_iter();
                if self.page.len() == 0 {
                    self.layout.write_tail(out);
                    self.over = true;
                }
                continue;
            };
            let presenter = Presenter {
                registry: &self.call.state.registry,
                context: &self.call.context,
                target: &self.target,
                form: self.form,
                media: self.style.media,
                include: self.include,
            };
            let before = out.len();
            self.layout.write_item(out, |out| match self.message {
                Some(message) => presenter.item_message(&stored, message, out),
                None => presenter.item(&stored, &self.print, out),
            })?;
            let copied = self.form == Form::Whole && self.style.media == Media::Json && !self.style.pretty;
            // Defaults that have come since may make an object longer than it is stored.
            let len = stored.record.len().max(out.len() - before);
            self.turn += len * if copied { 1 } else { 4 };
            if self.turn > TURN_BYTES {
                self.turn = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends what was written and all that follows.
    async fn send(mut self, mut out: Vec<u8>, pieces: Pieces) -> Result<(), BrokenOff> {
        let mut zip = self.style.gzip.then(|| {
            flate2::write::GzEncoder::new(Vec::with_capacity(PIECE_LEN), flate2::Compression::fast())
        });
        loop {
            match &mut zip {
                None => pieces.send(Bytes::from(std::mem::take(&mut out))).await,
                Some(zip) => {
                    // Writing into memory does not fail.
                    zip.write_all(&out).map_err(|_| BrokenOff)?;
                    out.clear();
                    if zip.get_ref().len() >= PIECE_LEN {
                        pieces.send(Bytes::from(std::mem::take(zip.get_mut()))).await;
                    }
                }
            }
            if self.over {
                break;
            }
            self.room().await?;
            out.reserve(PIECE_LEN + PIECE_LEN / 4);
            if let Err(status) = self.write(&mut out, PIECE_LEN).await {
                tracing::debug!(plane = %self.call.context.plane.name, message = %status.message, "a list broke off");
                return Err(BrokenOff);
            }
        }
        if let Some(zip) = zip {
            pieces.send(Bytes::from(zip.finish().map_err(|_| BrokenOff)?)).await;
        }
        Ok(())
    }

    /// Waits until the plane may have another piece in memory, but no longer than the request may take.
    async fn room(&self) -> Result<(), BrokenOff> {
        loop {
            if Instant::now() >= self.deadline {
                return Err(BrokenOff);
            }
            if self.call.pass.as_ref().is_none_or(|pass| pass.has_room(PIECE_LEN)) {
                return Ok(());
            }
            tokio::time::sleep(ROOM_PATIENCE).await;
        }
    }
}
