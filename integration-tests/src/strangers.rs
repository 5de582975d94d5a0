//! Programs that safe code must not be able to be. Each must not compile, for the reason that its error code names.
//! Beside it is a variant that differs only in that point and compiles. It shows that the reason is the right one.
//!
//! # A transport with messages at arbitrary addresses
//! Core follows the pointers that `Messages` returns.
//! ```compile_fail,E0200
//! # use std::ptr::NonNull;
//! # use farjump_core::transport::{Message, Messages, TransportError};
//! struct Anywhere;
//!
//! impl Messages for Anywhere {
//! #   fn reserve(&mut self, _: usize) -> Result<NonNull<u8>, TransportError> { Ok(NonNull::dangling()) }
//! #   fn commit(&mut self, _: usize, _: u64) -> Result<(), TransportError> { Ok(()) }
//! #   fn release(&mut self) {}
//!     fn poll(&mut self) -> Result<Option<Message>, TransportError> {
//!         Ok(Some(Message::new(NonNull::dangling(), 1 << 40)))
//!     }
//! }
//! ```
//! ```
//! # use std::ptr::NonNull;
//! # use farjump_core::transport::{Message, Messages, TransportError};
//! struct Anywhere;
//!
//! // SAFETY: there are no messages.
//! unsafe impl Messages for Anywhere {
//! #   fn reserve(&mut self, _: usize) -> Result<NonNull<u8>, TransportError> { unimplemented!() }
//! #   fn commit(&mut self, _: usize, _: u64) -> Result<(), TransportError> { Ok(()) }
//! #   fn release(&mut self) {}
//!     fn poll(&mut self) -> Result<Option<Message>, TransportError> {
//!         Ok(None)
//!     }
//! }
//! ```
//!
//! # A store with objects at arbitrary addresses
//! The target and the functions that it runs follow the pointers that `Objects` returns.
//! ```compile_fail,E0200
//! #![forbid(unsafe_code)]
//! # use std::ptr::{NonNull, without_provenance_mut};
//! # use farjump::objects::{RequestState, Lent, LingeringPeer, ObjectError, ObjectPage, Objects, Region, Request};
//! #[derive(Debug)]
//! struct Anywhere;
//!
//! impl Objects for Anywhere {
//! #   fn listening(&mut self, _: &str) {}
//! #   fn request(&mut self, _: u64, _: Request<'_>, _: &mut Vec<u8>, _: usize) -> Result<RequestState, String> { Ok(RequestState::Done) }
//! #   fn create(&mut self, _: usize) -> Result<Lent, ObjectError> { Err(ObjectError::Full) }
//! #   fn call_ended(&mut self, _: bool, _: &mut Vec<u8>) {}
//! #   fn source_ended(&mut self, _: u64, _: Option<LingeringPeer>) {}
//! #   fn region(&self, _: bool) -> Option<Region<'_>> { None }
//! #   fn list(&mut self, _: u64, _: usize) -> ObjectPage { ObjectPage::default() }
//!     fn resolve(&mut self, _: Request<'_>) -> Result<Lent, ObjectError> {
//!         let data = NonNull::new(without_provenance_mut(64)).ok_or(ObjectError::Gone)?;
//!         Ok(Lent { data, len: 1 })
//!     }
//! }
//! ```
//! ```
//! # use std::ptr::{NonNull, without_provenance_mut};
//! # use farjump::objects::{RequestState, Lent, LingeringPeer, ObjectError, ObjectPage, Objects, Region, Request};
//! #[derive(Debug)]
//! struct Anywhere;
//!
//! // SAFETY: no object of this store has a byte.
//! unsafe impl Objects for Anywhere {
//! #   fn listening(&mut self, _: &str) {}
//! #   fn request(&mut self, _: u64, _: Request<'_>, _: &mut Vec<u8>, _: usize) -> Result<RequestState, String> { Ok(RequestState::Done) }
//! #   fn create(&mut self, _: usize) -> Result<Lent, ObjectError> { Err(ObjectError::Full) }
//! #   fn call_ended(&mut self, _: bool, _: &mut Vec<u8>) {}
//! #   fn source_ended(&mut self, _: u64, _: Option<LingeringPeer>) {}
//! #   fn region(&self, _: bool) -> Option<Region<'_>> { None }
//! #   fn list(&mut self, _: u64, _: usize) -> ObjectPage { ObjectPage::default() }
//!     fn resolve(&mut self, _: Request<'_>) -> Result<Lent, ObjectError> {
//!         let data = NonNull::new(without_provenance_mut(64)).ok_or(ObjectError::Gone)?;
//!         Ok(Lent { data, len: 0 })
//!     }
//! }
//! ```
//!
//! # Closing another owner's file
//! An address passed to `UnconnectedEndpoint::connect` owns its descriptors, and a number makes none.
//! ```compile_fail,E0308
//! #![forbid(unsafe_code)]
//! # use std::os::fd::{AsRawFd, OwnedFd};
//! # use farjump_core::transport::Address;
//! let file = std::fs::File::open("/dev/null").unwrap();
//! let address = Address { bytes: Vec::new(), descriptors: vec![file.as_raw_fd()], stream: None };
//! ```
//! ```
//! #![forbid(unsafe_code)]
//! # use std::os::fd::{AsRawFd, OwnedFd};
//! # use farjump_core::transport::Address;
//! let file = std::fs::File::open("/dev/null").unwrap();
//! let address = Address { bytes: Vec::new(), descriptors: vec![OwnedFd::from(file)], stream: None };
//! ```
//! The address of an unconnected endpoint borrows them, and none of them outlives it.
//! ```compile_fail,E0505
//! # use farjump_core::transport::{OpenRequest, Transport};
//! # use farjump_transports::shm::Shm;
//! let end = Shm::new().open(&OpenRequest::new(8192, 4096)).unwrap();
//! let address = end.address();
//! drop(end);
//! println!("{}", address.descriptors.len());
//! ```
//! ```
//! # use farjump_core::transport::{OpenRequest, Transport};
//! # use farjump_transports::shm::Shm;
//! let end = Shm::new().open(&OpenRequest::new(8192, 4096)).unwrap();
//! let address = end.address();
//! println!("{}", address.descriptors.len());
//! drop(end);
//! ```
//!
//! # A slice of a file that other processes may write
//! ```compile_fail,E0599
//! # use farjump::Data;
//! let bytes: &[u8] = Data::empty().bytes();
//! ```
//! ```
//! # use farjump::Data;
//! let mut copy = [0; 16];
//! let len: usize = Data::empty().copy_to(0, &mut copy);
//! ```
//!
//! # Running arbitrary bytes
//! ```compile_fail,E0133
//! # use farjump::Executor;
//! # use farjump::buffer::{AlignedBuffer, FrameRunner};
//! # use farjump::core::signal::LinkKey;
//! let mut executor = Executor::builder().build().unwrap();
//! let mut runner = FrameRunner::new(LinkKey::from_bytes([7; 16]));
//! let ran = runner.run(&mut executor, &mut AlignedBuffer::new(4096)).unwrap();
//! ```
//! ```
//! # use farjump::Executor;
//! # use farjump::buffer::{AlignedBuffer, FrameRunner};
//! # use farjump::core::signal::LinkKey;
//! let mut executor = Executor::builder().build().unwrap();
//! let mut runner = FrameRunner::new(LinkKey::from_bytes([7; 16]));
//! // SAFETY: the buffer holds no frame.
//! let ran = unsafe { runner.run(&mut executor, &mut AlignedBuffer::new(4096)) }.unwrap();
//! ```
//!
//! # Exporting an arbitrary address as a function
//! ```compile_fail,E0133
//! # use farjump_loader::Exports;
//! let mut exports = Exports::new();
//! exports.insert("store_get", 0x1000 as *const _);
//! ```
//! ```compile_fail,E0133
//! # use farjump_loader::Resolver;
//! let mut resolver = Resolver::default();
//! resolver.interpose("store_get", 0x1000 as *const _);
//! ```
//! ```
//! # use farjump_loader::{Exports, Resolver};
//! let (mut exports, mut resolver) = (Exports::new(), Resolver::default());
//! // SAFETY: nothing is linked with them.
//! unsafe {
//!     exports.insert("store_get", 0x1000 as *const _);
//!     resolver.interpose("store_get", 0x1000 as *const _);
//! }
//! ```
//!
//! # Running the constructors of a file
//! Opening a library is safe, and runs none of its code.
//! ```
//! #![forbid(unsafe_code)]
//! # use farjump::Library;
//! let library = Library::open("./any.so");
//! ```
//! ```compile_fail,E0133
//! # use farjump::Library;
//! let library = Library::load("./any.so");
//! ```
//! ```compile_fail,E0133
//! # use farjump::Library;
//! let library = Library::load_named("./any.so", "any");
//! ```
//! ```compile_fail,E0133
//! # use farjump::Target;
//! let builder = Target::listen("unix:x").export_library("./any.so");
//! ```
//! ```compile_fail,E0133
//! # use farjump::Executor;
//! let builder = Executor::builder().export_library("./any.so");
//! ```
//! ```compile_fail,E0133
//! # use farjump::Executor;
//! # let mut executor = Executor::builder().build().unwrap();
//! let replaced = executor.export_library("./any.so");
//! ```
//! ```compile_fail,E0133
//! # use farjump_loader::Resolver;
//! let allowed = Resolver::default().allow_library("./any.so");
//! ```
//! ```compile_fail,E0133
//! # use farjump_loader::Resolver;
//! let replaced = Resolver::default().interpose_bytes("any", b"any");
//! ```
//! ```
//! # use farjump::{Executor, Library, Target};
//! # use farjump_loader::Resolver;
//! # let mut executor = Executor::builder().build().unwrap();
//! // SAFETY: there is no such file, and `any` is no library.
//! unsafe {
//!     let library = Library::load("./any.so");
//!     let library = Library::load_named("./any.so", "any");
//!     let builder = Target::listen("unix:x").export_library("./any.so");
//!     let builder = Executor::builder().export_library("./any.so");
//!     let replaced = executor.export_library("./any.so");
//!     let allowed = Resolver::default().allow_library("./any.so");
//!     let replaced = Resolver::default().interpose_bytes("any", b"any");
//! }
//! ```
