//! Lists as answers, in every form: written piece by piece as the client takes them, from pages that are read as
//! they are needed. An answer holds a page and a piece in memory, whatever the length of the list and the patience
//! of the client; other requests get a turn between the pieces.
//!
//! A page and the pieces made of it take up room of the server's budget, which is asked for before the page is read
//! and given back when the last of the pieces has left. A list holds no page while it waits for room for another: at most a
//! piece that it has begun.
//!
//! What fits in one piece is sent whole, with its length. A longer list that cannot be finished (its state was
//! forgotten, its time is up) breaks off, so that no client takes a part for the whole.

use std::io::Write as _;
use std::sync::Arc;

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
use crate::budget::Room;
use crate::handler::Call;
use crate::indent::{INDENTED_BYTES_MAX, styled_len};
use crate::list_layout::Layout;
use crate::negotiate::{Form, Media};
use crate::present::{Presenter, list_meta};
use crate::table::IncludeObject;

/// Pieces are about this long: two frames of HTTP/2.
const PIECE_LEN: usize = 32 * 1024;
/// Bytes copied, or a quarter as many parsed, before others get a turn.
const TURN_BYTES: usize = 256 * 1024;
/// What a page of objects may weigh beside its last object; see the registry's listing.
const PAGE_BYTES: usize = 1280 * 1024;
/// Messages that take no more than this are made once and kept; of longer lists only the length is.
const MADE_BYTES_MAX: usize = 1024 * 1024;
/// What a compressor holds.
const GZIP_BYTES: usize = 300 * 1024;

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
    /// What the page and its pieces take up; the pieces hold it too.
    room: Option<Arc<Room>>,
    /// What the page weighs, with what every piece needs.
    page_bytes: usize,
    /// The newest piece.
    piece_len: usize,
    /// Something has been sent: too late for another code.
    begun: bool,
    layout: Layout,
    message: Option<ListMessage<'static>>,
    /// What is left to write of items that were made when they were measured.
    made: Option<Bytes>,
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
    room: Option<Room>,
) -> Result<Answer, Status> {
    let presenter = call.presenter(&target, form, style)?;
    let (include, print) = (presenter.include, presenter.print());
    let meta = list_meta(&list);
    let (layout, message, made) = if style.media == Media::Protobuf {
        let (frame, message) = presenter.list_message(meta)?;
        let (len, made) = measured(&presenter, message, list.objects.clone()).await?;
        (Layout::message(&frame, message, len), Some(message), made.map(Bytes::from))
    } else {
        let (key, frame) = presenter.list_frame(meta);
        (Layout::text(key, frame, style)?, None, None)
    };
    let mut out = Vec::with_capacity(PIECE_LEN);
    layout.write_head(&mut out);
    // What was listed without asking is counted.
    let room = room.or_else(|| call.pass.as_ref().map(|pass| pass.count_large(0))).map(Arc::new);
    let page_bytes = made.as_ref().map_or(0, |made| made.len() + piece_bytes(style));
    if let Some(room) = room.as_ref().filter(|_| made.is_some()) {
        room.set(page_bytes);
    }
    let mut writing = Writing {
        room,
        page_bytes,
        piece_len: 0,
        begun: false,
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
        made,
        turn: 0,
        over: false,
    };
    // Only what is longer than this is compressed, so it must be known before anything is sent.
    writing.write(&mut out, GZIP_BYTES_MIN).await?;
    if writing.over {
        return Ok(answer::whole(StatusCode::OK, out, style));
    }
    writing.begun = true;
    let zipped = style.gzip;
    Ok(answer::with_body(AnswerBody::counted_stream(|pieces| writing.send(out, pieces)), style.media, zipped))
}

/// What a list may take up at one time: a page, its last object, and a piece with a large object in it, which may be
/// indented.
pub(crate) fn step_bytes(call: &Call, style: Style) -> usize {
    let object = call.object_bytes_max();
    PAGE_BYTES + object + object.max(INDENTED_BYTES_MAX) + piece_bytes(style)
}

/// What pieces take up beside a large object.
fn piece_bytes(style: Style) -> usize {
    2 * PIECE_LEN + if style.gzip { GZIP_BYTES } else { 0 }
}

/// What the items take as messages, whose length stands in front of them; and the messages, if they are few.
async fn measured(
    presenter: &Presenter<'_>,
    message: ListMessage<'static>,
    mut objects: Objects,
) -> Result<(u64, Option<Vec<u8>>), Status> {
    let (mut len, mut turn) = (0, 0);
    let (mut out, mut is_whole) = (Vec::new(), true);
    loop {
        let page = objects.page().await?;
        if page.is_empty() {
            return Ok((len, is_whole.then_some(out)));
        }
        for stored in &page {
            if !is_whole || out.len() > MADE_BYTES_MAX {
                is_whole = false;
                out.clear();
            }
            let before = out.len();
            presenter.item_message(stored, message, &mut out)?;
            len += (out.len() - before) as u64;
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
            if let Some(made) = &mut self.made {
                out.extend_from_slice(&made.split_to(made.len().min(PIECE_LEN)));
                if made.is_empty() {
                    self.layout.write_tail(out);
                    self.over = true;
                }
                continue;
            }
            let Some(stored) = self.page.next() else {
                self.next_page().await?;
                if self.page.len() == 0 {
                    self.layout.write_tail(out);
                    self.over = true;
                }
                continue;
            };
            let presenter = Presenter {
                state: &self.call.state,
                context: &self.call.context,
                target: &self.target,
                form: self.form,
                media: self.style.media,
                include: self.include,
            };
            let before = out.len();
            if stored.record.len() > PIECE_LEN {
                // What is counted is what is there.
                out.reserve_exact(stored.record.len() + PIECE_LEN);
            }
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

    /// Reads on. The room of the page before goes first, except for what is still on its way.
    async fn next_page(&mut self) -> Result<(), Status> {
        if self.page_bytes > 0 {
            if let Some(room) = self.room.take() {
                room.set(self.piece_len);
            }
            self.room = self.ask(step_bytes(&self.call, self.style)).await?;
        }
        let page = self.objects.page().await?;
        let style = self.style;
        let styled = page.iter().map(|stored| styled_len(stored.record.body(), style));
        let largest = styled.max().unwrap_or(0);
        let weight: usize = page.iter().map(|stored| stored.record.len()).sum();
        self.page_bytes = weight + piece_bytes(style);
        // Nearly always less than was asked for. If it is more (objects from before a limit was lowered, all that a deletion
        // took), it is counted: who holds a page does not wait.
        if let Some(room) = &self.room {
            room.set(self.page_bytes + largest);
        }
        self.page = page.into_iter();
        Ok(())
    }

    /// Room to go on. A list that has begun waits for it as long as it may take, another not for long.
    async fn ask(&self, bytes: usize) -> Result<Option<Arc<Room>>, Status> {
        let room = match &self.call.pass {
            Some(pass) if self.begun => {
                let none = || Status::timeout("there was no room for the rest of the list");
                let asking = pass.more_room(bytes).map_err(|_| none())?;
                Some(tokio::time::timeout_at(self.deadline, asking).await.map_err(|_| none())?)
            }
            _ => self.call.room(bytes).await?,
        };
        Ok(room.map(Arc::new))
    }

    /// A piece that is ready to go.
    fn piece(&mut self, bytes: Vec<u8>) -> Bytes {
        self.piece_len = bytes.len();
        let bytes = Bytes::from(bytes);
        let Some(pass) = &self.call.pass else { return bytes };
        if let Some(room) = &self.room {
            // Some forms are longer than what they are made of.
            room.raise(self.page_bytes.saturating_add(bytes.len()));
        }
        pass.carry_in(bytes, self.room.clone())
    }

    /// Sends what was written and all that follows.
    async fn send(mut self, mut out: Vec<u8>, pieces: Pieces) -> Result<(), BrokenOff> {
        let mut zip = self.style.gzip.then(|| {
            flate2::write::GzEncoder::new(Vec::with_capacity(PIECE_LEN), flate2::Compression::fast())
        });
        loop {
            match &mut zip {
                None => pieces.send(self.piece(std::mem::take(&mut out))).await,
                Some(zip) => {
                    // Writing into memory does not fail.
                    zip.write_all(&out).map_err(|_| BrokenOff)?;
                    out.clear();
                    if zip.get_ref().len() >= PIECE_LEN {
                        pieces.send(self.piece(std::mem::take(zip.get_mut()))).await;
                    }
                }
            }
            if self.over {
                break;
            }
            if Instant::now() >= self.deadline {
                return Err(BrokenOff);
            }
            out.reserve(PIECE_LEN + PIECE_LEN / 4);
            if let Err(status) = self.write(&mut out, PIECE_LEN).await {
                tracing::debug!(plane = %self.call.context.plane.name, message = %status.message, "a list broke off");
                return Err(BrokenOff);
            }
        }
        if let Some(zip) = zip {
            pieces.send(self.piece(zip.finish().map_err(|_| BrokenOff)?)).await;
        }
        Ok(())
    }
}
