//! The bytes of objects on their way between a client and an owner: in place, or through frames.

use std::collections::VecDeque;
use std::sync::Arc;

use farjump::{Ended, Patience};

use crate::client::Client;
use crate::client::sleeping::{NAP, Nap, sleep_on_word};
use crate::client::view::View;
use crate::error::Error;
use crate::owner::store::check_type_name;
use crate::owner::table::Claimed;
use crate::owner::topic::Wait;
use crate::wire::handle::{Handle, Key};
use crate::wire::requests::{MAX_READ, Op, Reader, Writer};

/// Longest object that travels in the request to put it, in bytes. A longer one is written in place.
const INLINE: usize = 1024;
/// Bytes of one request to write where the owner's memory is not mapped.
const PART: usize = 256 << 10;
/// Maximum number of requests to read or write under way at a time.
const WINDOW: usize = 8;

impl Client {
    /// Returns `Ok` if the owner's memory is mapped, and otherwise the reason why not.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn mapping(&self) -> Result<(), &str> {
        self.0.region().map(drop)
    }

    /// The bytes of an object. If the owner's memory is mapped, they are the owner's bytes. Otherwise they are a copy:
    /// the transport reads it from the owner's memory if it can, and it comes in frames if not ([`View::access`]).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::WrongKey`], [`Error::Unset`]; [`Error::TimedOut`]; [`Error::Link`] if the owner is gone.
    pub fn get(&self, handle: &Handle) -> Result<View, Error> {
        self.get_with(handle, &mut self.0.patience())
    }

    /// As [`Client::get`], with a time limit or a check of the caller's.
    ///
    /// # Errors
    /// As [`Client::get`], and [`Error::Interrupted`].
    pub fn get_with(&self, handle: &Handle, patience: &mut Patience<'_>) -> Result<View, Error> {
        match self.0.claim(handle, patience)? {
            Ok((claimed, loan)) => self.view(handle, claimed, &loan, patience),
            Err(_) => Err(Error::Unset { number: handle.number }),
        }
    }

    /// As [`Client::get`], on a thread that the owner also needs: calls `turn` until the owner's reply has come. Then
    /// it waits for bytes that come in frames as [`Client::get`] does.
    ///
    /// # Errors
    /// As [`Client::get`], and [`Error::Interrupted`] when `turn` returns `false`.
    pub fn get_driving(&self, handle: &Handle, turn: impl FnMut() -> bool) -> Result<View, Error> {
        match self.0.claim_driving(handle, turn)? {
            Ok((claimed, loan)) => self.view(handle, claimed, &loan, &mut self.0.patience()),
            Err(_) => Err(Error::Unset { number: handle.number }),
        }
    }

    /// As [`Client::get_with`], but waits for the contents of a reserved object.
    ///
    /// # Errors
    /// As [`Client::get_with`].
    pub fn wait(&self, handle: &Handle, patience: &mut Patience<'_>) -> Result<View, Error> {
        let mut nap = Nap::default();
        loop {
            let offset = match self.0.claim(handle, patience)? {
                Ok((claimed, loan)) => return self.view(handle, claimed, &loan, patience),
                Err(word) => word,
            };
            // The owner changes the word when it has the contents.
            let wait = Wait { offset, value: 0 };
            if !sleep_on_word(self.0.region().ok(), wait, NAP, &mut nap, patience)? {
                return Err(self.0.ended(Ended::TimedOut, patience));
            }
        }
    }

    /// Returns the view of a claimed object. `loan` is the key of its loan, empty if it is not lent.
    fn view(
        &self,
        handle: &Handle,
        claimed: Claimed,
        loan: &[u8],
        patience: &mut Patience<'_>,
    ) -> Result<View, Error> {
        if let Ok(region) = self.0.region() {
            let Some(data) = region.at(claimed.offset, claimed.len) else {
                return Err(self.0.protocol("an object that it gave lies outside its memory"));
            };
            return Ok(View::of_client(Arc::clone(&self.0), data, claimed));
        }
        if let Some(bytes) = self.read(handle, claimed, loan, patience)? {
            return Ok(View::of_read(bytes));
        }
        let pulled = self.pull(claimed, patience);
        self.0.release(claimed.claim, claimed.len as usize);
        pulled.map(View::of_copy)
    }

    /// Copies a claimed object through frames, several at a time.
    fn pull(&self, claimed: Claimed, patience: &mut Patience<'_>) -> Result<Vec<u8>, Error> {
        let too_long = |_| self.0.protocol("an object that it gave is longer than memory");
        let len = usize::try_from(claimed.len).map_err(too_long)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| Error::Memory {
            doing: "copying an object of",
            len: claimed.len,
            source: std::io::ErrorKind::OutOfMemory.into(),
            advice: String::new(),
        })?;
        // A reply brings as many bytes as the link takes. The first reply shows how many.
        let mut step = MAX_READ;
        while bytes.len() < len {
            self.0.check_process()?;
            // Dropping them cancels them.
            let mut requests = VecDeque::new();
            let window = if bytes.is_empty() { 1 } else { WINDOW };
            self.0.link.with(|link| {
                for place in 0..window as u64 {
                    let at = bytes.len() as u64 + place * step;
                    if at >= claimed.len {
                        break;
                    }
                    let mut request = Writer::request(Op::Read);
                    request.u64(claimed.claim).u64(at).u64(step);
                    let number = link.inject(&self.0.library, &request.0)?.into_raw();
                    requests.push_back(self.0.link.pending_from_raw(number));
                }
                Ok::<_, farjump::Error>(())
            })??;
            for place in 0.. {
                let Some(request) = requests.pop_front() else { break };
                let reply = request.wait(patience).map_err(|ended| self.0.ended(ended, patience))?;
                let part = self.0.fields(&reply, claimed.claim)?.0;
                let wanted = (len - bytes.len()).min(step as usize);
                if part.is_empty() || part.len() > wanted || (place > 0 && part.len() < wanted) {
                    return Err(self.0.protocol("it sent another part of an object than was asked for"));
                }
                step = step.min(part.len() as u64);
                bytes.extend_from_slice(part);
                if (part.len() as u64) < MAX_READ && place == 0 && part.len() < wanted {
                    break;
                }
            }
        }
        Ok(bytes)
    }

    /// Puts an object.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::SourceFull`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn put(&self, bytes: &[u8]) -> Result<Handle, Error> {
        self.put_parts("", &[bytes], &mut self.0.patience())
    }

    /// Puts an object that consists of `parts` in their order, with a name for its type.
    ///
    /// # Errors
    /// As [`Client::put`], and [`Error::TypeName`], [`Error::Interrupted`].
    pub fn put_parts(
        &self,
        type_name: &str,
        parts: &[&[u8]],
        patience: &mut Patience<'_>,
    ) -> Result<Handle, Error> {
        check_type_name(type_name)?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let (number, key) = self.write(None, type_name, parts, patience)?;
        Ok(self.0.handle(number, key, len as u64, type_name))
    }

    /// Makes a handle whose object gets its contents later ([`Client::set`]).
    ///
    /// # Errors
    /// As [`Client::put`], and [`Error::TypeName`].
    pub fn reserve(&self, type_name: &str) -> Result<Handle, Error> {
        check_type_name(type_name)?;
        let mut request = Writer::request(Op::Reserve);
        request.text(type_name);
        let reply = self.0.exchange(&request.0, &mut self.0.patience())?;
        let mut fields = self.0.fields(&reply, 0)?;
        let made = (|| Some((fields.u64()?, fields.key()?)))();
        let (number, key) = made.ok_or_else(|| self.0.malformed())?;
        Ok(self.0.handle(number, key, 0, type_name))
    }

    /// Gives a reserved object contents, in place of its present ones.
    ///
    /// # Errors
    /// As [`Client::put`], and [`Error::NotReserved`], [`Error::Gone`], [`Error::WrongKey`], [`Error::Interrupted`].
    pub fn set(&self, handle: &Handle, parts: &[&[u8]], patience: &mut Patience<'_>) -> Result<(), Error> {
        self.0.check(handle)?;
        self.write(Some(handle), &handle.type_name, parts, patience).map(drop)
    }

    /// Writes a new object, for the reserved one if that is given.
    fn write(
        &self,
        reserved: Option<&Handle>,
        type_name: &str,
        parts: &[&[u8]],
        patience: &mut Patience<'_>,
    ) -> Result<(u64, Key), Error> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let about = reserved.map_or(0, |handle| handle.number);
        let (number, key) = reserved.map_or((0, Key([0; 16])), |handle| (handle.number, handle.key));
        let made = |fields: &mut Reader<'_>| Some((fields.u64()?, fields.key()?));
        if len <= INLINE {
            let mut request = Writer(Vec::with_capacity(len + 64));
            request.u8(Op::Put as u8).u64(number).bytes(&key.0).text(type_name);
            parts.iter().for_each(|part| _ = request.bytes(part));
            let reply = self.0.exchange(&request.0, patience)?;
            return made(&mut self.0.fields(&reply, about)?).ok_or_else(|| self.0.malformed());
        }
        let mut request = Writer::request(Op::Allocate);
        request.u64(len as u64).text(type_name);
        let reply = self.0.exchange(&request.0, patience)?;
        let mut fields = self.0.fields(&reply, about)?;
        let place = made(&mut fields).and_then(|(number, key)| Some((number, key, fields.u64()?)));
        let (written, its_key, offset) = place.ok_or_else(|| self.0.malformed())?;
        self.fill(written, offset, len, parts).inspect_err(|_| self.0.take_back(written, its_key))?;
        let mut request = Writer::request(Op::Commit);
        request.u64(written).u64(number).bytes(&key.0);
        let committed = self.0.exchange(&request.0, patience);
        if reserved.is_none() && committed.is_err() {
            // The caller gets no handle. With a reserved object, the owner has set the contents, or refused and dropped
            // them.
            self.0.take_back(written, its_key);
        }
        self.0.fields(&committed?, about)?;
        Ok((written, its_key))
    }

    /// Writes the contents of an object whose memory was allocated: `len` bytes at `offset`.
    fn fill(&self, number: u64, offset: u64, len: usize, parts: &[&[u8]]) -> Result<(), Error> {
        match self.0.region() {
            Ok(region) if region.is_writable() => {
                let Some(data) = region.at(offset, len as u64) else {
                    return Err(self.0.protocol("memory that it gave lies outside its memory"));
                };
                let mut at = 0;
                for part in parts {
                    // SAFETY: the owner has given these `len` bytes of mapped memory to this client alone, until they are
                    // committed. An owner that lies harms its own objects.
                    unsafe { data.as_ptr().add(at).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
                    at += part.len();
                }
                Ok(())
            }
            _ => self.push(number, parts),
        }
    }

    /// Sends the contents of an object through frames. The commit behind them shows whether they came.
    fn push(&self, number: u64, parts: &[&[u8]]) -> Result<(), Error> {
        self.0.check_process()?;
        let mut at = 0;
        let mut request = Writer(Vec::with_capacity(PART + 32));
        let sent = self.0.link.with(|link| {
            for part in parts.iter().flat_map(|part| part.chunks(PART)) {
                request.0.clear();
                request.u8(Op::Write as u8).u64(number).u64(at).bytes(part);
                link.send(&self.0.library, &request.0)?;
                at += part.len() as u64;
            }
            Ok::<_, farjump::Error>(())
        })?;
        Ok(sent?)
    }
}
