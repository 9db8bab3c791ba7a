//! Frames, messages and addresses. Calls are tested with what uses them: KMS plugins in `kms`, etcd in `store-etcd`.

use super::frames::{Frames, framed};
use super::protobuf::{Field, Fields, put, put_always, put_number};
use super::*;

#[test]
fn frames_come_in_any_pieces() {
    let arrives = [framed(b"one"), framed(b""), framed(&[7; 90])].concat();
    for piece_len in 1..arrives.len() {
        let mut frames = Frames::new(90);
        let mut found = Vec::new();
        for piece in arrives.chunks(piece_len) {
            frames.push(piece);
            while let Some(message) = frames.next().unwrap() {
                found.push(message.to_vec());
            }
        }
        assert_eq!(found, [b"one".to_vec(), Vec::new(), vec![7; 90]]);
        assert!(frames.is_empty());
    }
}

#[test]
fn frames_are_bounded() {
    for (head, expected) in [
        ([0, 0, 0, 0, 91], "too long"),
        ([0, 255, 255, 255, 255], "too long"),
        ([1, 0, 0, 0, 1], "compressed"),
    ] {
        let mut frames = Frames::new(90);
        frames.push(&head);
        assert!(frames.next().unwrap_err().contains(expected));
    }
}

#[test]
fn fields_come_back() {
    let mut out = Vec::new();
    put(1, b"text", &mut out);
    put(2, b"", &mut out);
    put_always(3, b"", &mut out);
    put_number(4, u64::MAX, &mut out);
    put_number(5, 0, &mut out);
    out.extend_from_slice(&[6 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0, 7 << 3 | 5, 0, 0, 0, 0]);
    let found: Option<Vec<_>> = Fields(&out).collect();
    let expected = vec![
        (1, Field::Bytes(b"text")),
        (3, Field::Bytes(b"")),
        (4, Field::Number(u64::MAX)),
        (6, Field::Other),
        (7, Field::Other),
    ];
    assert_eq!(found, Some(expected));
    for len in 0..out.len() {
        Fields(&out[..len]).for_each(drop);
    }
    assert_eq!(Fields(&[0x0b]).last(), Some(None), "groups are no fields");
}

#[test]
fn addresses() {
    let identity = Identity::default();
    for url in ["http://127.0.0.1:2379", "http://etcd-0.example:2379/", "http://[::1]:2379"] {
        assert!(Endpoint::new(url, &identity).is_ok(), "{url}");
    }
    for url in
        ["", "127.0.0.1:2379", "http://host", "ftp://host:1", "http://host:1/path", "http://:1", "unix:///x"]
    {
        assert!(matches!(Endpoint::new(url, &identity), Err(EndpointError::Url { .. })), "{url}");
    }
    let identity = Identity { authorities: Some(b"no certificate".to_vec()), certificate: None };
    assert!(matches!(Endpoint::new("https://host:1", &identity), Err(EndpointError::Certificates { .. })));
}
