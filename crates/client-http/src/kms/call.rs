//! One call to a plugin, on a connection of its own.

use std::path::Path;
use std::time::Duration;

use super::KmsError;
use crate::grpc::{Call, Channel, GrpcError};

const ANSWER_LEN_MAX: usize = 64 << 10;

pub(super) async fn call(
    path: &Path,
    timeout: Duration,
    method: &str,
    message: &[u8],
) -> Result<Vec<u8>, KmsError> {
    let method = format!("v2.KeyManagementService/{method}");
    let called = async {
        let channel = Channel::connect_unix(path).await?;
        let call = Call { method: &method, metadata: &[], message, timeout, answer_len_max: ANSWER_LEN_MAX };
        channel.call(call).await
    };
    let called = tokio::time::timeout(timeout, called).await.unwrap_or(Err(GrpcError::Timeout));
    let path = path.to_owned();
    called.map(Vec::from).map_err(|error| match error {
        GrpcError::Connect(source) => KmsError::Connect { path, source },
        GrpcError::Timeout => KmsError::Timeout { path, timeout },
        GrpcError::Handshake(source) | GrpcError::Unsent(source) | GrpcError::Protocol(source) => {
            KmsError::Protocol { path, source }
        }
        GrpcError::Status { code, message } => KmsError::Refused { path, code, message },
    })
}
