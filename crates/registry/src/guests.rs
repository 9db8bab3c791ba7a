//! Who is somebody in a plane that is not their home, by its bindings: guests, who are the provider's, and strangers, who are nobody.
//!
//! Invariant: a plane that binds nothing to them is not there for them.

use std::sync::Arc;

use polder_auth::authz::Attributes;
use polder_auth::{MASTERS, UserInfo};
use polder_model::PlaneId;
use polder_store::Plane;

use crate::registry::Registry;

impl Registry {
    /// Somebody as a plane sees them, if it does. Those who are of this plane, and those who may do everything, are who they
    /// are. Others are guests, and must be named by one of its bindings: that they are somebody is not enough.
    pub async fn seen(&self, plane: &Arc<Plane>, user: UserInfo) -> Option<UserInfo> {
        if plane.id == PlaneId::CORE || user.in_group(MASTERS) || user.home.is_some() {
            return user.home.is_none_or(|home| home == plane.id).then_some(user);
        }
        let guest = user.guest_of(plane.id);
        let book = match self.roles.at_hand(plane.id) {
            Some(book) => book,
            None => {
                let _place = self.roles.guests.acquire().await;
                // Whether a plane can be read is no guest's business.
                self.roles.book(plane).await.ok()?
            }
        };
        book.knows(&guest).then_some(guest)
    }

    /// Whether a plane's own bindings let nobody in particular do something. A plane has one place at most among those that are read
    /// for strangers, so that one with very many bindings does not keep others waiting.
    pub async fn lets_in(&self, plane: &Arc<Plane>, attributes: &Attributes<'_>) -> bool {
        let book = match self.roles.at_hand(plane.id) {
            Some(book) => Some(book),
            None => {
                let _turn = self.roles.stranger_turns.take(plane.id).await;
                let _place = self.roles.strangers.acquire().await;
                self.roles.book(plane).await.ok()
            }
        };
        book.is_some_and(|book| book.decide(attributes).is_allow())
    }
}
