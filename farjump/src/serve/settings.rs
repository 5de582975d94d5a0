//! The numbers of a target, and the memory that they allow its sources.

use std::sync::Arc;
use std::time::Duration;

use farjump_control::{ArrivalOptions, Limits, MAX_NAME, Rights, plain};
use farjump_core::cpu::Cpu;
use farjump_core::frame::LINE;
use farjump_core::image::Level;
use farjump_core::mailbox::region_len;
use farjump_core::transport::OpenRequest;
use farjump_core::wait::WaitPolicy;
use farjump_os::cpu::detected;

use super::session::LargeFrames;
use crate::config::TargetConfig;
use crate::open_channel::AT_ONCE;
use crate::policy::at_least;
use crate::{Error, Limited, ServeError};

/// The numbers of a target.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) mailbox: usize,
    /// True if mailboxes have all of their memory when a link is made.
    pub(super) prefault: bool,
    /// True if functions that the program exports may query the principal of the running call.
    pub(super) exposes_callers: bool,
    pub(super) wait: WaitPolicy,
    pub(super) stall_timeout: Duration,
    pub(super) handshake_timeout: Duration,
    pub(super) control_interval: Duration,
    pub(super) limits: Limits,
    /// Capacity for placed code in bytes.
    pub(super) arena_size: usize,
    pub(super) rights: Rights,
    pub(super) allow_export: bool,
    // Not a `String`: eight bytes more in a target cost the guard's loop registers.
    pub(super) program: Box<str>,
    /// Whether UCX's TCP is allowed.
    pub(super) ucx_tcp: bool,
    /// Time for which a source's machine may be silent.
    pub(super) peer_timeout: Duration,
    /// The CPU that the target announces to sources.
    pub(super) cpu: Arc<Cpu>,
}

impl Settings {
    /// The numbers of a configuration.
    pub(super) fn of(config: &TargetConfig) -> Settings {
        let program = config.program.clone().unwrap_or_else(crate::program_name);
        let program = plain(&program, MAX_NAME);
        Settings {
            mailbox: config.mailbox_size,
            prefault: config.prefault,
            exposes_callers: config.expose_callers,
            wait: config.wait_policy.map_or_else(crate::wait::default_wait, crate::wait::followed_here),
            stall_timeout: config.stall_timeout,
            handshake_timeout: config.handshake_timeout,
            control_interval: config.control_interval,
            limits: config.limits(),
            arena_size: config.arena_size,
            rights: config.rights,
            allow_export: config.allow_export,
            ucx_tcp: config.ucx_tcp,
            peer_timeout: config.peer_timeout,
            cpu: detected(),
            program: program.into(),
        }
    }

    /// # Errors
    /// [`crate::ServeError::Limit`] for limits with which the target
    /// would serve no source.
    pub(super) fn check(&self) -> Result<(), Error> {
        at_least(Limited::Frame, self.limits.frame, LINE)?;
        at_least(Limited::SourceMemory, self.limits.source_memory, region_len(self.mailbox))
    }

    /// Handshake options of a target that began in `epoch`.
    pub(super) fn arrival(&self, epoch: u64) -> ArrivalOptions {
        let request = OpenRequest::new(region_len(self.mailbox), self.mailbox.min(self.limits.frame));
        let request = if self.prefault { request } else { request.at_once(AT_ONCE) };
        let mut options = ArrivalOptions::new(&*self.program, epoch, request);
        options.longest_delivered = self.longest_delivered();
        options.patience = self.handshake_timeout;
        options.rights = self.rights();
        options.cpu = Arc::clone(&self.cpu);
        options
    }

    /// Announces to sources a CPU with exactly the features that `level` guarantees.
    ///
    /// # Errors
    /// [`crate::ServeError::CpuLevel`] for a level above that of the CPU.
    pub(super) fn limit_level(&mut self, level: Level) -> Result<(), Error> {
        if level > self.cpu.level() {
            return Err(Error::Serve(ServeError::CpuLevel { level, cpu: self.cpu.to_string().into() }));
        }
        self.cpu = Arc::new(Cpu::of_level(self.cpu.machine(), level));
        Ok(())
    }

    /// Rights of processes that connect.
    pub(super) fn rights(&self) -> Rights {
        if self.allow_export { self.rights | Rights::EXPORT } else { self.rights }
    }

    /// Returns the longest frame in bytes over a transport that delivers whole ones. A source may have one frame at a
    /// time that is longer than its mailbox. Half of the rest of its memory is left for code and replies.
    pub(super) fn longest_delivered(&self) -> usize {
        self.large_frames()
            .frame
            .min(self.memory_besides_mailbox() / 2)
            .max(self.mailbox.min(self.limits.frame))
    }

    /// The longest frames outside the mailbox.
    pub(super) fn large_frames(&self) -> LargeFrames {
        LargeFrames::of(&self.limits, self.arena_size)
    }

    /// Bytes of memory that a source may take besides its mailbox.
    pub(super) fn memory_besides_mailbox(&self) -> usize {
        match self.limits.source_memory {
            Limits::NONE => Limits::NONE,
            memory => memory.saturating_sub(region_len(self.mailbox)),
        }
    }

    /// Bytes of memory that a source takes by its frames, the longest of which has `longest` bytes.
    pub(super) fn memory_of_frames(&self, longest: usize) -> usize {
        region_len(self.mailbox) + if longest > self.mailbox { longest } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use farjump_core::image::Machine;

    use super::*;

    #[test]
    fn a_level_is_claimed_exactly_and_none_above_that_of_the_cpu() {
        let level = |number| Level::new(Machine::X86_64, number).unwrap();
        let cpu = Cpu::new(Machine::X86_64, level(3), "znver2", ["avx2", "sha"]).unwrap();
        let mut settings = Settings { cpu: Arc::new(cpu.clone()), ..Settings::of(&TargetConfig::default()) };
        let error = settings.limit_level(level(4)).unwrap_err();
        let refused =
            matches!(&error, Error::Serve(ServeError::CpuLevel { level, .. }) if level.number() == 4);
        assert!(refused, "{error}");
        assert!(error.to_string().contains("v3 (znver2), and a target that claims level v4"), "{error}");
        assert_eq!(*settings.cpu, cpu);
        for number in [3, 2, 0] {
            settings.limit_level(level(number)).unwrap();
            assert_eq!(*settings.cpu, Cpu::of_level(Machine::X86_64, level(number)));
            assert_eq!(*settings.arrival(1).cpu, *settings.cpu);
        }
        // A claimed level is not raised again.
        assert!(settings.limit_level(level(2)).is_err());
    }

    #[test]
    fn the_longest_delivered_frame_fits_twice_into_memory_besides_the_mailbox() {
        let mut settings = Settings::of(&TargetConfig::default());
        assert!(settings.longest_delivered() > settings.limits.large_payload);
        for memory in [region_len(4 << 20), 5 << 20, 16 << 20, 100 << 20, 1 << 30] {
            settings.limits.source_memory = memory;
            settings.check().unwrap();
            let longest = settings.longest_delivered();
            assert!(longest >= (4 << 20), "what the mailbox would hold is taken in any case");
            let taken = settings.memory_of_frames(longest);
            assert!(taken <= memory, "{taken} of {memory}");
            assert!(longest == (4 << 20) || memory - taken >= longest, "{taken} of {memory}");
        }
        settings.limits.frame = 1000;
        assert_eq!(settings.longest_delivered(), 1000);
        assert_eq!(settings.memory_of_frames(1000), region_len(4 << 20));
    }
}
