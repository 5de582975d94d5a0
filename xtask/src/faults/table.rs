//! The faults, as changes to the sources.

/// Placeholder in a change for the condition under which the fault is active.
pub(super) const FAULTY: &str = "FAULTY";

/// The conversations that find a fault: a test of `fuzz/conversations`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finder {
    /// Conversations about calls that run later.
    Errands,
    /// Conversations about stores.
    Stores,
}

impl Finder {
    /// The name of the kind in the file of seeds.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Finder::Errands => "errands",
            Finder::Stores => "stores",
        }
    }

    /// The name of the test.
    pub(super) fn test(self) -> &'static str {
        match self {
            Finder::Errands => "deferred_calls_run_for_their_permitted_principal_and_reply_after_holds",
            Finder::Stores => "store_memory_is_freed_once_and_never_while_mapped",
        }
    }
}

/// A change to one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// The file, from the top folder.
    pub(super) file: &'static str,
    /// Text that occurs there once.
    pub(super) from: &'static str,
    /// The text in its place. It does the same unless [`FAULTY`] is true.
    pub(super) to: &'static str,
}

/// A mended fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// Its name.
    pub(super) name: &'static str,
    /// The conversations that find it.
    pub(super) finder: Finder,
    /// The changes that put it back.
    pub(super) changes: &'static [Change],
}

/// All faults.
pub(super) const FAULTS: &[Fault] = &[
    // Calls that run later without a principal, a hold, or an end of their right.
    Fault {
        name: "again-for-another",
        finder: Finder::Errands,
        changes: &[Change {
            file: "farjump/src/serve/forward/again.rs",
            from: "executor.begin_for(&again.caller.principal);",
            to: "if !FAULTY { executor.begin_for(&again.caller.principal); }",
        }],
    },
    Fault {
        name: "later-links-for-another",
        finder: Finder::Errands,
        changes: &[Change {
            file: "farjump/src/serve/sessions.rs",
            from: "if in_turn {\n            self.poll_in_turn();",
            to: "if in_turn && !FAULTY {\n            self.poll_in_turn();",
        }],
    },
    Fault {
        name: "again-without-hold",
        finder: Finder::Errands,
        changes: &[Change {
            file: "farjump/src/serve/forward/again.rs",
            from: "if ended == Ended::Held {",
            to: "if ended == Ended::Held && !FAULTY {",
        }],
    },
    Fault {
        name: "sent-on-without-hold",
        finder: Finder::Errands,
        changes: &[Change {
            file: "farjump/src/serve/forward/mod.rs",
            from: "if is_held {",
            to: "if is_held && !FAULTY {",
        }],
    },
    Fault {
        name: "gathered-without-hold",
        finder: Finder::Errands,
        changes: &[Change {
            file: "farjump/src/serve/forward/gathers.rs",
            from: "gather.caller.hold = gather.caller.hold.max(hold);",
            to: "if !FAULTY { gather.caller.hold = gather.caller.hold.max(hold); }",
        }],
    },
    Fault {
        name: "withdrawn-goes-on",
        finder: Finder::Errands,
        changes: &[Change {
            file: "farjump/src/serve/forward/ends.rs",
            from: "self.take_waiting(|caller| reason(&caller.principal).is_some())",
            to: "self.take_waiting(|caller| !FAULTY && reason(&caller.principal).is_some())",
        }],
    },
    Fault {
        name: "key-goes-on",
        finder: Finder::Errands,
        changes: &[Change {
            file: "farjump/src/serve/target/key_changes.rs",
            from: "self.withdraw(|principal| keys.revokes(principal.named_key()?, rights));",
            to: "if !FAULTY { self.withdraw(|principal| keys.revokes(principal.named_key()?, rights)); }",
        }],
    },
    Fault {
        name: "image-of-any",
        finder: Finder::Errands,
        changes: &[Change {
            file: "farjump/src/serve/forward/families.rs",
            from: "named.code(&id).or_else(own)",
            to: "named.code(&id).or_else(own).or_else(|| (FAULTY).then(|| farjump_loader::Domain::default().key(id)))",
        }],
    },
    // Memory of ended links, free while their peers still use it.
    Fault {
        name: "owner-frees",
        finder: Finder::Stores,
        changes: &[Change {
            file: "farjump/src/serve/target/end_links.rs",
            from: "            let lingering = session.into_peer();\n",
            to: "            let lingering = session.into_peer().filter(|_| !FAULTY);\n",
        }],
    },
    Fault {
        name: "farewell-frees",
        finder: Finder::Stores,
        changes: &[Change {
            file: "farjump/src/serve/target/end_links.rs",
            from: "self.shared.forwards.source_ended(id);\n        let lingering = session.into_peer();\n",
            to: "self.shared.forwards.source_ended(id);\n        let lingering = session.into_peer().filter(|_| !FAULTY);\n",
        }],
    },
    Fault {
        name: "parent-frees",
        finder: Finder::Stores,
        changes: &[Change {
            file: "control/src/connection/socket.rs",
            from: "if self.ends_by_last_close {",
            to: "if self.ends_by_last_close && !FAULTY {",
        }],
    },
    Fault {
        name: "claims-freed",
        finder: Finder::Stores,
        changes: &[Change {
            file: "handles/src/owner/table/quarantine.rs",
            from: "let bytes = self.held_by(source);\n",
            to: "let bytes = self.held_by(source);\n        if FAULTY { self.release_all(source); }\n",
        }],
    },
    Fault {
        name: "unfinished-freed",
        finder: Finder::Stores,
        changes: &[
            Change {
                file: "handles/src/owner/table.rs",
                from: "self.accounts.hold(source, lines(len));\n        Ok((number",
                to: "if !FAULTY { self.accounts.hold(source, lines(len)); }\n        Ok((number",
            },
            Change {
                file: "handles/src/owner/table.rs",
                from: "if self.unfinished.remove(&(source, number)) {",
                to: "if self.unfinished.remove(&(source, number)) && !FAULTY {",
            },
        ],
    },
    Fault {
        name: "place-freed-twice",
        finder: Finder::Stores,
        changes: &[
            Change {
                file: "handles/src/owner/turn.rs",
                from: "*self.now.get_or_insert_with(clock::now)",
                to: "if FAULTY { return clock::now(); }\n        *self.now.get_or_insert_with(clock::now)",
            },
            Change {
                file: "handles/src/owner/table/moves.rs",
                from: "            object.claims += 1;\n",
                to: "            if !FAULTY { object.claims += 1; }\n",
            },
            Change {
                file: "handles/src/owner/table/moves.rs",
                from: "            self.unclaim(number, 1);\n            began?;",
                to: "            if !FAULTY { self.unclaim(number, 1); }\n            began?;",
            },
            Change {
                file: "handles/src/owner/table/moves.rs",
                from: "let is_gone = object.is_none();\n",
                to: "let is_gone = object.is_none();\n                if is_gone && FAULTY { self.forget_place(place); }\n",
            },
        ],
    },
    // Stores without a budget or a unit of work.
    Fault {
        name: "heap-uncounted",
        finder: Finder::Stores,
        changes: &[Change {
            file: "handles/src/owner/table/memory.rs",
            from: "self.memory.used() + self.accounts.bytes()",
            to: "self.memory.used() + if FAULTY { 0 } else { self.accounts.bytes() }",
        }],
    },
    Fault {
        name: "turn-without-end",
        finder: Finder::Stores,
        changes: &[Change {
            file: "handles/src/owner/turn.rs",
            from: "MOST_VISITS.saturating_sub(self.visits)",
            to: "if FAULTY { u32::MAX } else { MOST_VISITS.saturating_sub(self.visits) }",
        }],
    },
    Fault {
        name: "members-end-at-once",
        finder: Finder::Stores,
        changes: &[
            Change {
                file: "handles/src/owner/topics/ends.rs",
                from: "if !table.turn.take() {\n                return false;\n            }\n            if self.publishers",
                to: "if FAULTY { table.turn.visit(1); } else if !table.turn.take() {\n                return false;\n            }\n            if self.publishers",
            },
            Change {
                file: "handles/src/owner/topics/ends.rs",
                from: "if !table.turn.take() {\n                return false;\n            }\n            self.used.remove",
                to: "if FAULTY { table.turn.visit(1); } else if !table.turn.take() {\n                return false;\n            }\n            self.used.remove",
            },
        ],
    },
    Fault {
        name: "topic-names-left",
        finder: Finder::Stores,
        changes: &[Change {
            file: "handles/src/owner/topics/ends.rs",
            from: "if topic.items.is_empty() {\n            self.detach(id);",
            to: "if topic.items.is_empty() && !FAULTY {\n            self.detach(id);",
        }],
    },
];
