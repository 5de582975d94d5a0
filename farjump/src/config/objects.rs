//! The options of stores of objects, their clients, and topics.

use std::path::PathBuf;
use std::time::Duration;

use super::kinds::{
    Address, Auto, Bytes64, Count32, File, Flag, Folder, List, Overflow, OverflowName, Time, TransportName,
};
use super::table::{Interfaces, options};

/// Options of stores that a program makes.
const OF_RUST_AND_C: Interfaces = Interfaces::RUST.union(Interfaces::C);

options! {
    /// The options of a client of a store of objects.
    ClientConfig of "a client", methods of (ClientConfig);

    /// Time limit of the connection.
    connect_timeout: [Duration] Time = Duration::from_secs(5), "5s", shown Interfaces::LIBRARY;

    /// Time limit of requests without one of their own.
    timeout: [Duration] Time = Duration::from_secs(30), "30s", shown Interfaces::LIBRARY;

    /// The transport, by its name.
    transport: [Option<String>] Auto<TransportName> = None, "the best one that both processes have";

    /// The file with the key, at a tcp: address.
    key_file: [Option<PathBuf>] Auto<File> = None, "none", formerly &["key"];

    /// Map the owner's memory if possible. Without that all bytes travel in frames.
    mapped: [bool] Flag = true, "yes";
}

options! {
    /// The options of a store of objects.
    StoreConfig of "a store", methods of (StoreConfig);

    /// Most bytes of the objects, rounded up to pages. Only used bytes take memory.
    capacity: [Option<u64>] Auto<Bytes64> = None, "1G, or half of the memory that the process may use, whichever is less", shown OF_RUST_AND_C, memory true;

    /// When the memory is full, write the objects whose last use is longest ago to a file without a name in this folder.
    ///
    /// The store reads an object back when it is used. The file ends with the process. Without a file, a full store
    /// refuses new objects. The store starts a thread that reads and writes the file, `farjump-spill`, which ends with the
    /// store. Calls of the store that need the file wait on their own thread. Requests of clients wait without delaying
    /// others. A forked child has no such thread: its store is full, and objects in the file are lost to it.
    spill_folder: [Option<PathBuf>] Auto<Folder> = None, "none", shown OF_RUST_AND_C, needs &["spill-bytes"];

    /// Most bytes of the file in `spill-folder`.
    spill_bytes: [Option<u64>] Auto<Bytes64> = None, "none", shown OF_RUST_AND_C, needs &["spill-folder"], range Some((1, u64::MAX));

    /// Further addresses for the handles, by which other processes reach a target of this store: that of a proxy, or a
    /// name of the machine. All handles have the addresses of the store's targets.
    address: [Vec<String>] List<Address> = Vec::new(), "none", shown OF_RUST_AND_C;
}

options! {
    /// The options of a publisher of a topic.
    PublisherConfig of "a publisher", methods of (PublisherConfig);

    /// Most entries of the topic that some subscriber has not passed yet. The first publisher of a topic decides: the owner
    /// refuses a later one that requests another capacity.
    capacity: [Option<u32>] Auto<Count32> = None, "64", shown Interfaces::LIBRARY;

    /// Number of latest entries that stay for late subscribers, though all others have passed them. The first publisher of a
    /// topic decides.
    keep: [u32] Count32 = 0, "0", shown Interfaces::LIBRARY;

    /// Number of subscribers for which the topic waits. Until that many have come, entries leave the topic only by the
    /// overflow drop-oldest. The first publisher of a topic decides.
    await_subscribers: [u32] Count32 = 1, "1", shown Interfaces::LIBRARY;

    /// The action of this publisher when the topic is full: wait until the slowest subscriber has advanced, refuse at once,
    /// or drop-oldest.
    overflow: [Overflow] OverflowName = Overflow::Wait, "wait", shown Interfaces::LIBRARY;
}

options! {
    /// The options of a subscriber to a topic.
    SubscriberConfig of "a subscriber", methods of (SubscriberConfig);

    /// Begin with the next entry that is published, and not with the oldest in the topic.
    from_now: [bool] Flag = false, "no", shown Interfaces::LIBRARY;

    /// Number of publishers that must have opened the topic before the stream can end. With 0, the stream ends whenever no
    /// publisher is open and the subscriber has received all entries.
    publishers: [u32] Count32 = 1, "1", shown Interfaces::LIBRARY;
}
