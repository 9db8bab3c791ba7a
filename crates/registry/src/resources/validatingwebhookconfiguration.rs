//! Validating webhooks: outside services that may refuse requests.

use super::webhook::CONFIGURATION;
use crate::behavior::Behavior;

pub(super) const VALIDATING_WEBHOOK_CONFIGURATION: Behavior =
    Behavior { resource: "validatingwebhookconfigurations", ..CONFIGURATION };
