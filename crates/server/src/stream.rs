//! Watch answers: lines of JSON, or framed messages, for as long as the client listens. No task and no queue per watch: the connection
//! polls the watch itself, and takes as much as is there at once.
//!
//! What many watchers share is counted for none of them. What one watcher has for itself (a page of the state it begins
//! with, lines put together, lines of old events) takes up room of its plane's; while there is none it is not told more.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::{self, HeaderValue};
use polder_registry::watch::{ClientWatch, WatchItem};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::State;
use crate::answer::Answer;
use crate::body::{AnswerBody, BrokenOff, Pieces};
use crate::budget::Room;
use crate::limits::{Pass, Weight};
use crate::negotiate::{Form, Media};
use crate::present::{Presenter, frame};
use crate::table::IncludeObject;
use crate::websocket::IsWatch;

/// How often an idle watch hears how far the server is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(50);
/// A last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A client that takes nothing does not see the end; it is cut off so long after it.
const GRACE: Duration = Duration::from_secs(30);
/// After this many pieces a watch that has always more to tell looks whether it should end.
const CHECK_EVERY: u32 = 64;
/// How much is put together before it is sent.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// How often a watch whose plane has too much in memory looks again.
const ROOM_CHECK_EVERY: Duration = Duration::from_millis(50);

struct Stream {
    state: Arc<State>,
    watch: ClientWatch,
    media: Media,
    form: Form,
    include: IncludeObject,
    end: Instant,
    next_bookmark: Instant,
    /// Fires at the next bookmark or at the end, whichever is first. Kept from event to event: setting a timer
    /// costs more than sending an event.
    timer: Pin<Box<Sleep>>,
    /// Kept for the same reason.
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    first: bool,
    /// Whether it still has a seat.
    sits: bool,
    over: bool,
    memory: Memory,
    /// A line that did not go with those before it.
    kept: Option<Bytes>,
    /// What was sent last was this watcher's own.
    own: bool,
}

/// What a watch takes up.
pub(crate) struct Memory {
    pub(crate) pass: Option<Pass>,
    /// What reading a page may take.
    pub(crate) step: usize,
    /// Of the page in hand.
    pub(crate) room: Option<Arc<Room>>,
    /// Of long selectors, for as long as the watch is open.
    pub(crate) _selectors: Option<Room>,
}

pub(crate) fn answer(
    state: Arc<State>,
    watch: ClientWatch,
    media: Media,
    form: Form,
    include: IncludeObject,
    memory: Memory,
) -> Answer {
    let now = Instant::now();
    let end = now + watch.timeout;
    let next_bookmark = (now + BOOKMARK_EVERY).min(end - BOOKMARK_BEFORE_END.min(watch.timeout));
    let stream = Stream {
        timer: Box::pin(tokio::time::sleep_until(next_bookmark.min(end))),
        stopping: Box::pin(state.stopping.clone().cancelled_owned()),
        state,
        watch,
        media,
        form,
        include,
        end,
        next_bookmark,
        first: true,
        sits: true,
        over: false,
        memory,
        kept: None,
        own: false,
    };
    let mut answer = Response::new(AnswerBody::counted_stream(|pieces| stream.run(pieces)));
    let content_type = match media {
        Media::Json | Media::Yaml => HeaderValue::from_static("application/json"),
        Media::Protobuf => HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch"),
    };
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer.extensions_mut().insert(IsWatch);
    answer.body_mut().end_at(end + GRACE);
    answer
}

impl Stream {
    async fn run(mut self, pieces: Pieces) -> Result<(), BrokenOff> {
        let mut count = 0u32;
        while let Some(piece) = self.piece().await {
            pieces.send(piece).await;
            count = count.wrapping_add(1);
            // While events keep coming nothing else is looked at, so it is looked at now and then.
            if count.is_multiple_of(CHECK_EVERY)
                && (Instant::now() >= self.end || self.state.stopping.is_cancelled())
            {
                break;
            }
        }
        Ok(())
    }

    /// What there is to send now; waits for the first line, then takes what is ready.
    async fn piece(&mut self) -> Option<Bytes> {
        let kept = self.kept.take();
        if self.over && kept.is_none() {
            return None;
        }
        if kept.is_none() {
            // What is kept goes first: it has room already, and nothing is asked for while it is held.
            self.room().await?;
            if self.watch.reads_page() {
                // It may take long: a webhook may have to be asked.
                tokio::select! {
                    biased;
                    () = self.watch.read_page() => {}
                    () = self.stopping.as_mut() => return None,
                    () = tokio::time::sleep_until(self.end) => return None,
                }
            }
        }
        if self.watch.is_told_state() {
            // Whoever waits for news holds nothing.
            self.memory.room = None;
            if let Some(pass) = self.memory.pass.as_ref().filter(|_| self.sits) {
                pass.stand_up();
                self.sits = false;
            }
        }
        let first = match kept {
            Some(kept) => kept,
            None => self.line().await?,
        };
        if let Some(room) = &self.memory.room {
            room.set(self.watch.page_bytes() + first.len() + PIECE_BYTES_MAX);
        }
        let mut count = 1;
        // One line goes out as it is, shared with every other watcher of it.
        let mut more: Option<BytesMut> = None;
        let may_gather = self.memory.pass.as_ref().is_none_or(Pass::has_room);
        while may_gather && !self.over {
            let len = more.as_ref().map_or(first.len(), BytesMut::len);
            if len >= PIECE_BYTES_MAX {
                break;
            }
            let Some(next) = self.watch.ready().and_then(|item| self.encode(item)) else { break };
            if len + next.len() > PIECE_BYTES_MAX {
                self.kept = Some(next);
                break;
            }
            count += 1;
            more.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&next);
        }
        self.state.metrics.events_sent(count);
        let piece = more.map_or(first, BytesMut::freeze);
        self.own = piece.is_unique();
        Some(match (&self.memory.pass, &self.memory.room) {
            (Some(pass), Some(room)) => pass.carry_in(piece, Some(room.clone())),
            (Some(pass), None) if self.own => pass.carry(piece, Weight::Counted),
            _ => piece,
        })
    }

    /// Waits until this watcher may have more in memory, if that is needed to go on. `None` at the end.
    async fn room(&mut self) -> Option<()> {
        let Memory { pass: Some(pass), step, room, .. } = &mut self.memory else { return Some(()) };
        if self.watch.is_told_state() {
            *room = None;
        }
        let reads = self.watch.reads_page();
        if !reads && !self.own {
            return Some(());
        }
        if reads && let Some(held) = room.take() {
            if self.first {
                // Set aside before the watch began.
                *room = Some(held);
                return Some(());
            }
            // What is still on its way keeps it.
            held.set(PIECE_BYTES_MAX);
        }
        let asking = async {
            if reads {
                return Some(Arc::new(pass.more_room(*step).ok()?.await));
            }
            while !pass.has_room() {
                tokio::time::sleep(ROOM_CHECK_EVERY).await;
            }
            room.take()
        };
        let given = tokio::select! {
            biased;
            given = asking => given,
            () = self.stopping.as_mut() => return None,
            () = tokio::time::sleep_until(self.end) => return None,
        };
        // Without room for a page there is no going on.
        if reads && given.is_none() {
            return None;
        }
        self.memory.room = given;
        Some(())
    }

    /// The next line, however long it takes. `None` at the end.
    async fn line(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                biased;
                item = self.watch.next() => return self.encode(item?),
                () = self.stopping.as_mut() => return None,
                () = self.timer.as_mut() => {
                    let now = Instant::now();
                    if now >= self.end {
                        return None;
                    }
                    let last = self.end - BOOKMARK_BEFORE_END.min(self.watch.timeout);
                    self.next_bookmark =
                        if now < last { (now + BOOKMARK_EVERY).min(last) } else { self.end + BOOKMARK_EVERY };
                    self.timer.as_mut().reset(self.next_bookmark.min(self.end));
                    if let Some(item) = self.watch.bookmark() {
                        return self.encode(item);
                    }
                }
            }
        }
    }

    fn encode(&mut self, item: WatchItem) -> Option<Bytes> {
        let presenter = Presenter {
            state: &self.state,
            context: self.watch.context(),
            target: &self.watch.target,
            form: self.form,
            media: self.media,
            include: self.include,
        };
        let line = match item {
            WatchItem::Object { change, object, version, event } => {
                presenter.event(change, &object, version, event.as_deref(), self.first)
            }
            WatchItem::Bookmark { version, initial_end } => {
                Ok(presenter.bookmark(version, initial_end, self.first))
            }
            WatchItem::Error(status) => {
                self.over = true;
                return Some(frame(self.media, "ERROR", &status.to_value()));
            }
        };
        self.first = false;
        Some(line.unwrap_or_else(|status| {
            self.over = true;
            frame(self.media, "ERROR", &status.to_value())
        }))
    }
}
