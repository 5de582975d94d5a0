//! An endpoint whose peer sends bytes, or at times, that no honest peer would.

use super::*;

/// A link whose left endpoint is the test itself: the socket, and the keys of both directions.
struct Liar {
    socket: std::os::unix::net::UnixStream,
    keys: Option<[Keys; 2]>,
}

/// Makes a liar, and an honest endpoint.
fn liar(terms: Terms) -> (Liar, TcpMessages) {
    let [left, right] = unix();
    let cipher = Cipher::agree(terms.seal == Seal::Aes, terms.seal == Seal::Aes);
    let secret = Secret::from_bytes([9; Secret::LEN]);
    let keys = (terms.seal != Seal::Clear).then(|| Keys::pair(cipher, StreamRole::Source, &[5; 32], &secret));
    (Liar { socket: left.into(), keys }, endpoint(right, StreamRole::Target, terms))
}

const HONEST: Head = Head { message: 64, body: 64, last: true, waits: false, consumed: 0, window: 4 << 20 };

impl Liar {
    /// A record, encrypted if the link encrypts records.
    fn record(&mut self, head: Head) -> Vec<u8> {
        let mut body = vec![0x11; usize::from(head.body)];
        let head = head.to_bytes();
        let tag = self.keys.as_mut().map(|[out, _]| out.seal(&head, &mut body).unwrap());
        [&head[..], &body, tag.as_ref().map_or(&[][..], |tag| tag)].concat()
    }

    fn write(&mut self, bytes: &[u8]) {
        std::io::Write::write_all(&mut self.socket, bytes).unwrap();
    }
}

#[test]
fn a_stream_cut_at_any_byte_delivers_whole_messages_and_then_ends() {
    for seal in SEALS {
        let whole = |liar: &mut Liar| {
            let long = Head { message: 2 * BODY as u32, body: BODY as u16, last: false, ..HONEST };
            let mut stream = liar.record(HONEST);
            let first = stream.len();
            stream.extend(liar.record(long));
            stream.extend(liar.record(Head { last: true, ..long }));
            (stream, first)
        };
        let (stream, first) = whole(&mut liar(Terms { seal, ..TERMS }).0);
        let near = |edge: usize| edge.saturating_sub(20)..edge + 20;
        let cuts = (0..first + 40).chain(near(first + BODY)).chain(near(first + BODY + 40));
        for cut in cuts.chain(stream.len() - 40..=stream.len()) {
            let (mut liar, mut post) = liar(Terms { seal, ..TERMS });
            let (stream, _) = whole(&mut liar);
            liar.write(&stream[..cut]);
            drop(liar);
            let mut lengths = Vec::new();
            let error = loop {
                match take(&mut post) {
                    Ok(Some(bytes)) => {
                        assert!(bytes.iter().all(|byte| *byte == 0x11));
                        lengths.push(bytes.len());
                    }
                    Ok(None) => {}
                    Err(error) => break error,
                }
            };
            let due: &[usize] = match cut {
                cut if cut < first => &[],
                cut if cut < stream.len() => &[64],
                _ => &[64, 2 * BODY],
            };
            assert_eq!(lengths, due, "{seal:?} cut at {cut}");
            let whole = [0, first, stream.len()].contains(&cut);
            assert_eq!(*error.cause() == Cause::PeerGone, whole, "{seal:?} cut at {cut}: {error}");
            assert!(whole || error.to_string().contains("its stream ended"), "{error}");
            assert_eq!(end_of(&mut post), error, "it does not stay at its end");
        }
    }
}

#[test]
fn a_stream_that_comes_byte_by_byte_is_whole() {
    for seal in SEALS {
        let (mut liar, mut post) = liar(Terms { seal, ..TERMS });
        for _ in 0..3 {
            let long = Head { message: BODY as u32 + 64, body: BODY as u16, last: false, ..HONEST };
            let records = [HONEST, long, Head { body: 64, last: true, ..long }, HONEST];
            let stream: Vec<u8> = records.into_iter().flat_map(|head| liar.record(head)).collect();
            let mut lengths = Vec::new();
            for byte in stream {
                liar.write(&[byte]);
                lengths.extend(take(&mut post).unwrap().map(|bytes| bytes.len()));
            }
            assert_eq!(lengths, [64, BODY + 64, 64]);
        }
    }
}

#[test]
fn a_flipped_bit_in_a_sealed_record_ends_the_link() {
    for seal in [Seal::Aes, Seal::ChaCha] {
        for bit in 0..(HEAD + 64 + TAG) * 8 {
            let (mut liar, mut post) = liar(Terms { seal, ..TERMS });
            let mut record = liar.record(HONEST);
            record[bit / 8] ^= 1 << (bit % 8);
            liar.write(&record);
            // A changed length may exceed the bytes that arrived.
            drop(liar);
            let error = end_of(&mut post);
            assert_ne!(*error.cause(), Cause::PeerGone, "bit {bit} was taken");
            assert!(post.parts.inbound.front().is_none());
        }
        let (mut liar, mut post) = liar(Terms { seal, ..TERMS });
        let long = Head { message: 2 * BODY as u32, body: BODY as u16, last: false, ..HONEST };
        let mut stream = liar.record(long);
        stream.extend(liar.record(Head { last: true, ..long }));
        let at = stream.len() - TAG - 1;
        stream[at] ^= 1;
        liar.write(&stream);
        let error = end_of(&mut post);
        assert!(error.to_string().contains("does not open"), "{error}");
    }
}

#[test]
fn a_long_message_takes_no_memory_before_its_first_record_is_opened() {
    let len = 64 << 20;
    let terms = Terms { window: len, max_frame: len, ..TERMS };
    for seal in [Seal::Aes, Seal::ChaCha] {
        let (mut liar, mut post) = liar(Terms { seal, ..terms });
        let long = Head { message: 2 * BODY as u32, body: BODY as u16, last: false, ..HONEST };
        let mut record = liar.record(long);
        // An attacker on the network, without a key, sets the length of the message to the maximum.
        record[..4].copy_from_slice(&len.to_le_bytes());
        // All but the end of the tag: the endpoint reads the length, but cannot authenticate it yet.
        let last = record.pop().unwrap();
        liar.write(&record);
        let parts = post.parts();
        assert!(!parts.inbound.next(&parts.socket, &mut parts.windows).unwrap());
        assert!(parts.inbound.held() < 80 << 10, "{seal:?}: {} bytes", parts.inbound.held());
        liar.write(&[last]);
        let error = end_of(&mut post);
        assert!(error.to_string().contains("does not open"), "{error}");
        assert!(post.parts.inbound.held() < 80 << 10, "{seal:?}");
    }
}

#[test]
fn records_that_are_sent_again_exchanged_or_left_out_end_the_link() {
    for seal in [Seal::Aes, Seal::ChaCha] {
        for order in [&[0, 0][..], &[1, 0], &[0, 2], &[1]] {
            let (mut liar, mut post) = liar(Terms { seal, ..TERMS });
            let records: Vec<_> = (0..3).map(|_| liar.record(HONEST)).collect();
            order.iter().for_each(|number| liar.write(&records[*number]));
            let error = end_of(&mut post);
            assert!(error.to_string().contains("does not open"), "{order:?}: {error}");
        }
        // The endpoint's own record, sent back to it.
        let (mut liar, mut post) = liar(Terms { seal, ..TERMS });
        send(&mut post, 64, 1).unwrap();
        let mut back = vec![0; HEAD + 64 + TAG];
        std::io::Read::read_exact(&mut liar.socket, &mut back).unwrap();
        liar.write(&back);
        let error = end_of(&mut post);
        assert!(error.to_string().contains("does not open"), "{error}");
    }
}

#[test]
fn false_heads_end_the_link_with_their_cause_and_take_bounded_memory() {
    let terms = Terms { window: 8192, max_frame: 1 << 20, ..TERMS };
    let full = BODY as u16;
    for seal in SEALS {
        for (heads, text) in [
            (&[Head { message: 65, body: 64, ..HONEST }][..], "64 bytes, not 65"),
            (&[Head { body: 128, ..HONEST }], "128 bytes, not 64"),
            (&[Head { last: false, ..HONEST }], "the last"),
            (&[Head { message: 1 << 30, body: full, last: false, ..HONEST }], "over the limit of 1048576"),
            (&[Head { message: (1 << 20) + 64, body: full, last: false, ..HONEST }], "over the limit"),
            (&[Head { consumed: 64, ..HONEST }], "consumed bytes that were not sent"),
            (&[Head { window: u32::MAX, ..HONEST }], "2 GiB"),
            (
                &[Head { message: 4096, body: 4096, ..HONEST }, Head { message: 8192, body: 8192, ..HONEST }],
                "beyond",
            ),
            (&[Head { message: 1 << 20, body: full, last: false, ..HONEST }, HONEST], "one of 1048576 bytes"),
        ] {
            let (mut liar, mut post) = liar(Terms { seal, ..terms });
            liar.socket.set_nonblocking(true).unwrap();
            for head in heads {
                let record = liar.record(*head);
                liar.write(&record);
            }
            // The test releases nothing, so the window fills.
            let deadline = Instant::now() + PATIENCE;
            let error = loop {
                assert!(Instant::now() < deadline, "{text}");
                let parts = post.parts();
                if let Err(cause) = parts.inbound.next(&parts.socket, &mut parts.windows) {
                    break cause;
                }
            };
            assert!(error.to_string().contains(text), "{seal:?} {text}: {error}");
            assert!(post.parts.inbound.held() < 3 << 20, "{text}");
        }
    }
}

#[test]
fn a_waiting_peer_gets_credit_before_this_endpoint_sleeps() {
    let (mut liar, mut post) = liar(Terms { window: 4096, ..TERMS });
    let records = [HONEST, Head { message: 0, body: 0, last: false, waits: true, ..HONEST }];
    let [message, waits] = records.map(|head| liar.record(head));
    liar.write(&message);
    assert!(take(&mut post).unwrap().is_some());
    liar.write(&waits);
    assert!(post.arm().unwrap());
    let mut credit = vec![0; HEAD + TAG];
    liar.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    std::io::Read::read_exact(&mut liar.socket, &mut credit).unwrap();
    let consumed = u32::from_le_bytes(credit[8..12].try_into().unwrap());
    assert_eq!(consumed, 64);
}

#[test]
fn a_flood_of_empty_records_takes_bounded_work_per_poll() {
    let (mut liar, mut post) = liar(Terms { seal: Seal::Clear, ..TERMS });
    let flood = liar.record(Head { message: 0, body: 0, last: false, ..HONEST }).repeat(1024);
    liar.socket.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(bytes) = std::io::Write::write(&mut liar.socket, &flood) {
        sent += bytes;
    }
    // One receive call fills at most a buffer.
    assert!(sent > 5 * (32 << 10), "{sent} bytes do not do for this test");
    let before = CALLS.get();
    assert!(post.poll().unwrap().is_none());
    assert_eq!(CALLS.get() - before, 4);
    assert!(post.poll().unwrap().is_none());
    assert!(CALLS.get() - before > 4, "the rest is not taken");
}

#[test]
fn credit_between_messages_takes_no_memory_while_they_are_held() {
    for seal in SEALS {
        let (mut liar, mut post) = liar(Terms { seal, window: 4096, ..TERMS });
        liar.socket.set_nonblocking(true).unwrap();
        for held in 1..=64 {
            // As much credit as fits a buffer before each message: sometimes both arrive together.
            let credit = Head { message: 0, body: 0, last: false, ..HONEST };
            let mut bytes: Vec<u8> = (0..1000).flat_map(|_| liar.record(credit)).collect();
            let parts = post.parts();
            if held % 2 == 0 {
                liar.write(&bytes);
                bytes.clear();
                while parts.inbound.next(&parts.socket, &mut parts.windows).unwrap() {}
            }
            bytes.extend(liar.record(HONEST));
            liar.write(&bytes);
            while !parts.inbound.next(&parts.socket, &mut parts.windows).unwrap() {}
            assert!(parts.inbound.held() < 80 << 10, "{seal:?}: {} bytes for {held}", parts.inbound.held());
        }
        for left in (0..64).rev() {
            assert_eq!(take(&mut post).unwrap().unwrap(), [0x11; 64], "{seal:?}, {left} left");
        }
    }
}
