//! A program with farjump as its only dependency can match on every error, and shows its text.

use std::process::Command;

use farjump::error::{
    AddressError, ArenaStep, BitcodeError, BundleError, CodeError, ConnectionError, ControlOperation,
    ControlSystemError, FileKind, HandshakeError, HandshakeEvent, ImageError, KeyError, KeyFault,
    KeyLineFault, LibraryError, MessageFault, NoListener, ParameterFault, PlaceError, RejectCause,
    ReservedBytes, TransportCause, TransportError, TransportOperation, TransportUnavailable,
};
use farjump::{
    Awaited, CallError, ConnectError, Error, GoneCause, InPlaceFault, InjectError, Key, Library, Limited,
    Link, Mailbox, Part, RefusalCause, ServeError, SystemError, SystemOperation, Target, WaitError,
};

/// Returns the remedy for a failure: a program matches by name on each type of error that others contain.
fn remedy(error: &Error) -> &'static str {
    match error {
        Error::Connect(error) => match error {
            ConnectError::Address(AddressError::Scheme { .. } | AddressError::EmptyPath) => "another address",
            ConnectError::Address(_) => "a shorter path",
            ConnectError::Key(KeyError::File { fault: KeyFault::Line { fault, .. }, .. }) => match fault {
                KeyLineFault::NoKey => "a new key",
                _ => "another line",
            },
            ConnectError::Key(_) => "another key",
            ConnectError::Connection(ConnectionError::NotListening { found, .. }) => match found {
                NoListener::NoFile | NoListener::NoFolder | NoListener::Ended => "start the target",
                _ => "another address",
            },
            ConnectError::Connection(ConnectionError::TimedOut {
                awaited: HandshakeEvent::Connection,
                ..
            }) => "more time",
            ConnectError::Connection(ConnectionError::System(ControlSystemError { operation, .. })) => {
                match operation {
                    ControlOperation::Connect => "the network",
                    _ => "the system",
                }
            }
            ConnectError::Connection(_) => "another target",
            ConnectError::Handshake(error) => match error {
                HandshakeError::Refused { cause: RejectCause::NoCommonTransport, .. } => "another transport",
                HandshakeError::Garbled { fault: MessageFault::Reserved(ReservedBytes::Head), .. } => {
                    "a target"
                }
                HandshakeError::Terms { fault: ParameterFault::NotOffered { .. }, .. } => "an honest target",
                HandshakeError::MissingRights(_) => "more rights",
                _ => "another target",
            },
            ConnectError::Unavailable(TransportUnavailable::NotBuilt { .. }) => "a feature",
            ConnectError::Unavailable(_) | ConnectError::NoTransport { .. } => "another transport",
            ConnectError::MailboxSize { mailbox: Mailbox::Calls | Mailbox::Replies, .. } => {
                "a smaller mailbox"
            }
            _ => "",
        },
        Error::Inject(InjectError::NotInPlace { fault: InPlaceFault::NoMailbox, .. }) => "another mode",
        Error::Inject(InjectError::OverLimit { part: Part::Payload, .. }) => "less at a time",
        Error::Inject(_) => "later",
        Error::Wait(WaitError::TimedOut { awaited: Awaited::Credit | Awaited::Outcome, .. }) => "more time",
        Error::Wait(WaitError::PeerGone { cause, .. }) => match cause {
            GoneCause::Control(error) if matches!(**error, HandshakeError::Silent { .. }) => "the network",
            GoneCause::Transport(error) => of_transport(error),
            _ => "reconnect",
        },
        Error::Wait(_) => "another wait",
        Error::Call(CallError::Refused { cause: RefusalCause::UnresolvedImport, .. }) => "an export",
        Error::Call(_) => "another function",
        Error::Serve(ServeError::Limit { limited: Limited::Frame, .. }) => "a larger limit",
        Error::Serve(_) => "other choices",
        Error::Library(error) => match error {
            LibraryError::NotALibrary { found: FileKind::NoElf, .. } => "farjump build",
            LibraryError::Bundle { source: BundleError::Magic, .. } => "build it again",
            LibraryError::Image { source: CodeError::Image(source), .. } => of_image(source),
            LibraryError::Image { source: CodeError::Bitcode(BitcodeError::Version(_)), .. } => {
                "build it again"
            }
            LibraryError::ArenaMemory { step: ArenaStep::Reserve, .. } => "a smaller arena",
            LibraryError::Place(PlaceError::Unresolved(_)) => "a larger arena",
            _ => "another library",
        },
        Error::Transport(error) => of_transport(error),
        Error::System(SystemError { operation: SystemOperation::MakeDescriptor, .. }) => "fewer descriptors",
        _ => "",
    }
}

fn of_transport(error: &TransportError) -> &'static str {
    match (error.operation(), error.cause()) {
        (TransportOperation::Open, _) => "another transport",
        (_, TransportCause::PeerGone) => "reconnect",
        _ => "",
    }
}

fn of_image(error: &ImageError) -> &'static str {
    if error.to_string().is_empty() { "" } else { "build it again" }
}

#[test]
fn errors_are_matched_on_without_another_crate() {
    let nobody = Link::connect("unix:/nonexistent/t.sock").unwrap_err();
    assert_eq!(remedy(&nobody), "start the target");
    assert_eq!(remedy(&Link::connect("nowhere").unwrap_err()), "another address");
    let no_library = Library::open(std::env::current_exe().unwrap()).unwrap_err();
    assert_eq!(remedy(&no_library.into()), "another library");
    let no_key = Key::read(std::path::Path::new("/nonexistent.key")).unwrap_err();
    assert_eq!(remedy(&Error::from(no_key)), "another key");
    let admits_nothing = Target::listen("unix:/nonexistent/t.sock").max_frame(1).build().unwrap_err();
    assert_eq!(remedy(&admits_nothing), "a larger limit");
}

#[test]
fn a_main_that_returns_an_error_prints_its_sentence() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_farjump_stranger")).arg("unix:nobody.sock").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "Error: no target listens on unix:nobody.sock (there is no such file): start one, for example with \
         `farjump serve --listen unix:nobody.sock`\n"
    );
}

#[test]
fn the_structure_of_an_error_is_shown_on_request() {
    let error = Link::connect("nowhere").unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    let structure: String = format!("{error:#?}").split_whitespace().collect();
    assert_eq!(structure, r#"Connect(Address(Scheme{given:"nowhere",},),)"#);
}
