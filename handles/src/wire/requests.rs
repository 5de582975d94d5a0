//! Requests to a store and its replies, as bytes: the payload of a call of [`farjump::objects::NAME`], and its reply.
//!
//! A request is its [`Op`] in one byte, and that operation's fields. All numbers are little-endian. A reply begins with
//! a [`Status`]. `docs/reference/protocol.md` has the table.

/// Version of the requests, sent in [`Op::Hello`].
pub(crate) const VERSION: u8 = 1;
/// Longest request without contents, in bytes.
pub(crate) const MAX_REQUEST: usize = 2048;
/// Most releases of items that travel with another request, which visits something itself.
pub(crate) const MAX_RELEASES: usize = 16;
/// Maximum number of claims that one request releases: the end of each visits several blocks.
pub(crate) const MAX_CLAIMS: usize = 16;
/// Longest read of one reply, in bytes.
pub(crate) const MAX_READ: u64 = 1 << 20;

/// Longest text in a request or reply, in bytes.
pub(crate) const MAX_TEXT: usize = 255;

/// Least length of objects, in bytes, that the owner lends to sources that read memory. Shorter ones come as soon in a
/// frame.
pub(crate) const MIN_LENT: u64 = 16 << 10;

/// The requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Op {
    /// `version u8`. Replied: `version u8, epoch u64, capacity u64, addresses`, and `1 u8` if the store has a file, in
    /// which case sources hold an object ([`Op::Hold`]) before a call at it.
    Hello = 0,
    /// `number u64, key, type name, contents`: makes an object. `number` is that of a reserved object whose contents
    /// these are, or 0. Replied: `number u64, key`.
    Put = 1,
    /// `len u64, type name`: memory for an object, which this source is to write. Replied: `number u64, key, offset u64`.
    Allocate = 2,
    /// `number u64, at u64, bytes`: a part of the contents of an object that this source allocated.
    Write = 3,
    /// `number u64, target u64, key of the target`: finishes the contents. With a target, they become those of the
    /// reserved object of that number.
    Commit = 4,
    /// `count u16, that many claims u64 to release, number u64, key`: claims an object, to read it. Replied: `claim u64,
    /// offset u64, len u64`; with [`Status::Unset`] the offset of the word to wait for.
    Claim = 5,
    /// `count u16, claims u64`: releases claims. No reply.
    Release = 6,
    /// `claim u64, at u64, len u64`: bytes of a claimed object. Replied: as many bytes as fit.
    Read = 7,
    /// `number u64, key`: evicts an object, also one that this source allocated and has not committed. Replied: `1 u8`
    /// if it existed.
    Evict = 8,
    /// `number u64, key`. Replied: `1 u8` if the object exists with contents, or is reserved.
    Exists = 9,
    /// `type name`: reserves a number. Replied: `number u64, key`.
    Reserve = 10,
    /// `number u64, key, milliseconds u64`: evicts the object after that time; 0 removes the limit.
    Lease = 11,
    /// `number u64, key, difference i64`: changes the count of references; the owner evicts the object when the count
    /// comes to 0.
    Count = 12,
    /// As [`Op::Claim`], of a source whose transport reads lent memory. Replied: the same, and behind it the key of the
    /// loan, or nothing if the object is not lent.
    ClaimLent = 13,
    /// `number u64, key`: claims an object for a call that follows on the same link, until that call has opened it. No
    /// reply.
    Hold = 14,
}

impl Op {
    pub(crate) fn from_number(number: u8) -> Option<Op> {
        const ALL: [Op; 15] = [
            Op::Hello,
            Op::Put,
            Op::Allocate,
            Op::Write,
            Op::Commit,
            Op::Claim,
            Op::Release,
            Op::Read,
            Op::Evict,
            Op::Exists,
            Op::Reserve,
            Op::Lease,
            Op::Count,
            Op::ClaimLent,
            Op::Hold,
        ];
        ALL.get(usize::from(number)).copied()
    }
}

/// The first byte of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Status {
    /// Done; the fields of the request's reply follow.
    Done = 0,
    /// There is no such object.
    Gone = 1,
    /// The handle's key is not the object's.
    WrongKey = 2,
    /// The object has no contents yet. `offset u64` of the word that changes when it gets them.
    Unset = 3,
    /// `requested u64, used u64, capacity u64, largest u64, quarantined u64`, a text that names the processes that keep the
    /// bytes in quarantine, and `1 u8` if the store's file could not be written.
    Full = 4,
    /// The object was not reserved.
    NotReserved = 5,
    /// The source may take no more of the owner's memory. `requested u64`.
    SourceFull = 6,
    /// The object cannot be read from the store's file.
    Lost = 7,
}

impl Status {
    pub(crate) fn from_number(number: u8) -> Option<Status> {
        const ALL: [Status; 8] = [
            Status::Done,
            Status::Gone,
            Status::WrongKey,
            Status::Unset,
            Status::Full,
            Status::NotReserved,
            Status::SourceFull,
            Status::Lost,
        ];
        ALL.get(usize::from(number)).copied()
    }
}

/// Writes fields.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// A request.
    pub(crate) fn request(op: Op) -> Writer {
        Writer(vec![op as u8])
    }

    pub(crate) fn u8(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    pub(crate) fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes a text of at most [`MAX_TEXT`] bytes, behind its length.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.u8(text.len() as u8).bytes(text.as_bytes())
    }
}

/// Reads fields. `None` where the bytes are too few, or no UTF-8.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn key(&mut self) -> Option<crate::wire::handle::Key> {
        self.array().map(crate::wire::handle::Key)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let len = self.u8()?;
        std::str::from_utf8(self.bytes(len.into())?).ok()
    }
}
