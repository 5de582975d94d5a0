//! An unconnected endpoint, and its address.

use farjump_core::frame::{LINE, MAX_FRAME};
use farjump_core::transport::{
    Address, Cause, Endpoint, LocalAddress, OpenRequest, Operation, Stream, TransportError,
    UnconnectedEndpoint,
};
use farjump_os::scrubbed;

use super::credit::{MOST, RecvCredit, SendCredit, Windows};
use super::error;
use super::inbound::Inbound;
use super::keys::{Cipher, Keys, has_aes};
use super::messages::{Parts, TcpMessages};
use super::outbound::Outbound;
use super::socket::Socket;
use farjump_os::fork_count;

/// Version of the address, and of the protocol after it.
const VERSION: u8 = 1;
/// Length of an address in bytes.
const LEN: usize = 10;
/// The processor has instructions for AES.
const AES: u8 = 1 << 0;

/// The contents of an endpoint address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EndpointAddress {
    pub(super) aes: bool,
    /// Bytes of messages that the endpoint accepts at first.
    pub(super) window: u32,
    /// Longest frame that the endpoint accepts, in bytes.
    pub(super) max_frame: u32,
}

impl EndpointAddress {
    /// The address of an endpoint for `request`. Its frames are not longer than `MAX_FRAME`.
    pub(super) fn new(request: &OpenRequest) -> EndpointAddress {
        EndpointAddress {
            aes: has_aes(),
            window: u32::try_from(request.region_len).unwrap_or(MOST).clamp(LINE as u32, MOST),
            max_frame: request.max_frame.min(MAX_FRAME) as u32,
        }
    }

    fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = VERSION;
        bytes[1] = if self.aes { AES } else { 0 };
        bytes[2..6].copy_from_slice(&self.window.to_le_bytes());
        bytes[6..].copy_from_slice(&self.max_frame.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<EndpointAddress, String> {
        let version = bytes.first().copied().unwrap_or(0);
        if version != VERSION {
            return Err(format!("its version is {version}, not {VERSION}"));
        }
        let Ok([_, flags, a, b, c, d, e, f, g, h]) = <[u8; LEN]>::try_from(bytes) else {
            return Err(format!("it has {} bytes, not {LEN}", bytes.len()));
        };
        let (window, max_frame) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if flags & !AES != 0 {
            return Err(format!("its flags are {flags:#04x}"));
        }
        if window == 0 || window > MOST {
            return Err(format!("its window has {window} bytes"));
        }
        if max_frame as usize > MAX_FRAME {
            return Err(format!("its longest frame has {max_frame} bytes"));
        }
        Ok(EndpointAddress { aes: flags & AES != 0, window, max_frame })
    }
}

/// An unconnected endpoint. It has no resources yet.
#[derive(Debug)]
pub(super) struct UnconnectedTcp(EndpointAddress);

impl UnconnectedTcp {
    pub(super) fn new(own_address: EndpointAddress) -> UnconnectedTcp {
        UnconnectedTcp(own_address)
    }

    pub(super) fn join(&self, peer: Address) -> Result<TcpMessages, Cause> {
        let peer_address = EndpointAddress::read(&peer.bytes).map_err(Cause::Address)?;
        if !peer.descriptors.is_empty() {
            return Err(Cause::Address("it has descriptors".to_owned()));
        }
        let Some(Stream { descriptor, role, token, secret }) = peer.stream else {
            return Err(Cause::Unsupported("an end without a stream, which farjump connects,"));
        };
        let cipher = Cipher::agree(self.0.aes, peer_address.aes);
        let keys = secret.map(|secret| scrubbed(|| Keys::pair(cipher, role, &token, &secret)));
        let (out, into) = keys.map_or((None, None), |[out, into]| (Some(out), Some(into)));
        fork_count::watch();
        let socket = Socket::new(descriptor).map_err(|errno| Cause::System(errno.to_string()))?;
        let parts = Parts {
            socket,
            outbound: Outbound::new(out),
            inbound: Inbound::new(into, self.0.max_frame),
            windows: Windows {
                send_credit: SendCredit::new(peer_address.window),
                recv_credit: RecvCredit::new(self.0.window),
            },
        };
        Ok(TcpMessages::new(parts, peer_address.max_frame as usize))
    }
}

impl UnconnectedEndpoint for UnconnectedTcp {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: self.0.to_bytes().to_vec(), descriptors: Vec::new() }
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let post = self.join(peer).map_err(|cause| error(Operation::Connect, cause))?;
        Ok(Endpoint::TwoSided(Box::new(post)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: EndpointAddress = EndpointAddress { aes: true, window: 4 << 20, max_frame: 1 << 31 };

    #[test]
    fn a_tcp_address_reads_back_as_written_and_invalid_ones_are_refused() {
        let bytes = SAMPLE.to_bytes();
        assert_eq!(EndpointAddress::read(&bytes), Ok(SAMPLE));
        for len in 0..LEN {
            EndpointAddress::read(&bytes[..len]).unwrap_err();
        }
        EndpointAddress::read(&[&bytes[..], &[0]].concat()).unwrap_err();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            EndpointAddress::read(&bytes)
        };
        for (at, byte) in [(0, 0), (0, 2), (1, 2), (1, 0x81), (5, 0xff), (9, 0xff)] {
            with(at, byte).unwrap_err();
        }
        assert_eq!(with(1, 0), Ok(EndpointAddress { aes: false, ..SAMPLE }));
        EndpointAddress::read(&EndpointAddress { window: 0, ..SAMPLE }.to_bytes()).unwrap_err();
    }

    #[test]
    fn an_end_without_a_stream_or_with_descriptors_is_refused() {
        let own = UnconnectedTcp::new(SAMPLE);
        let address = own.address().try_to_owned().unwrap();
        let text = own.join(address).unwrap_err().to_string();
        assert!(text.contains("stream"), "{text}");
        let mut address = own.address().try_to_owned().unwrap();
        address.descriptors.push(std::fs::File::open("/dev/null").unwrap().into());
        assert!(own.join(address).unwrap_err().to_string().contains("descriptors"));
    }
}
