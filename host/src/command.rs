//! The command window: one command at a time is with the card, the others wait here in order.
//!
//! A command is done when its event arrives; [`Adapter::poll_command`] reads the status register
//! instead, for the case that events do not come through. Whichever is first counts, the other is
//! recognised by its tag and ignored.

use std::collections::VecDeque;
use std::sync::Arc;

use verbena_abi::queue::{CmdCq, CmdMr, CmdQp, CommandCode, CommandOp};
use verbena_abi::regs::{CmdArgs, CmdGo, CmdResult, CmdStatus};
use zerocopy::IntoBytes;

use crate::adapter::Adapter;
use crate::error::Error;
use crate::lock;

/// Most commands that wait. Closing is not bounded by it (a close cannot fail) but by the number of objects.
pub const MAX_WAITING_COMMANDS: usize = 1024;

/// Words of the argument window.
const ARG_WORDS: usize = size_of::<CmdQp>() / 4;
const _: () = assert!(size_of::<CmdQp>() == size_of::<CmdCq>() && size_of::<CmdQp>() == size_of::<CmdMr>());

/// Answer of a call that goes on after it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Submitted {
    /// The callback will be called exactly once; it may have been already.
    Pending,
}

/// Answer of a close. It cannot fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CloseStatus {
    /// Closed; the callback was dropped without a call.
    Closed,
    /// The callback will be called exactly once; it may have been already.
    Pending,
}

/// Called when an object has left the card: the last callback of that object.
pub type CloseCallback = Box<dyn FnOnce() + Send>;

/// Called with the outcome of an asynchronous call.
pub type Callback<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// What a command left in the result registers.
pub(crate) type CommandResult = [u32; 8];

/// Called when a command is done, without any lock held.
type Done = Box<dyn FnOnce(&Arc<Adapter>, Result<CommandResult, Error>) + Send>;

/// A command with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    op: CommandOp,
    number: u32,
    args: [u32; ARG_WORDS],
    /// Words to write. Query and destroy look at the first alone, which saves 31 writes over the bus.
    words: usize,
    /// Result registers to read.
    results: usize,
}

impl Command {
    pub(crate) fn create_qp(args: &CmdQp) -> Self {
        Self::full(CommandOp::CreateQp, args.as_bytes())
    }

    pub(crate) fn modify_qp(args: &CmdQp) -> Self {
        Self::full(CommandOp::ModifyQp, args.as_bytes())
    }

    pub(crate) fn create_cq(args: &CmdCq) -> Self {
        Self::full(CommandOp::CreateCq, args.as_bytes())
    }

    pub(crate) fn create_mr(args: &CmdMr) -> Self {
        Self::full(CommandOp::CreateMr, args.as_bytes())
    }

    /// Returns a destroy or query command, which names its object and nothing else.
    pub(crate) fn naming(op: CommandOp, number: u32) -> Self {
        let results = match op {
            CommandOp::QueryQp => 8,
            CommandOp::QueryCq => 3,
            CommandOp::QueryMr => 1,
            _ => 0,
        };
        let mut args = [0; ARG_WORDS];
        args[0] = number;
        Self { op, number, args, words: 1, results }
    }

    fn full(op: CommandOp, bytes: &[u8]) -> Self {
        let mut args = [0; ARG_WORDS];
        for (word, chunk) in args.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        }
        // Each argument structure begins with the number of its object, or with its key.
        Self { op, number: args[0], args, words: ARG_WORDS, results: 0 }
    }
}

struct Job {
    command: Command,
    done: Done,
    /// A command under way keeps the adapter, and with it the rings that the card may still use.
    adapter: Arc<Adapter>,
}

/// Commands with the card and waiting for it.
#[derive(Default)]
pub(crate) struct CommandWindow {
    with_card: Option<(u16, Job)>,
    waiting: VecDeque<Job>,
    last_tag: u16,
    removed: bool,
}

impl CommandWindow {
    /// Returns whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.with_card.is_none() && self.waiting.is_empty()
    }

    /// Describes what is under way, for errors.
    pub(crate) fn describe(&self) -> String {
        match &self.with_card {
            Some((tag, job)) => {
                let (op, number) = (job.command.op, job.command.number);
                format!("the card has {op:?} of number {number} with tag {tag}, {} more wait", self.waiting.len())
            }
            None => "no command is with the card".to_owned(),
        }
    }
}

impl Adapter {
    /// Hands a command to the card, or queues it.
    ///
    /// Fails with [`Error::TooManyCommands`] or [`Error::DeviceRemoved`]; then `done` is not called.
    pub(crate) fn submit(
        self: &Arc<Self>,
        command: Command,
        done: impl FnOnce(&Arc<Adapter>, Result<CommandResult, Error>) + Send + 'static,
    ) -> Result<Submitted, Error> {
        let mut window = lock(&self.window);
        if window.removed {
            return Err(Error::DeviceRemoved { register: "CmdStatus" });
        }
        if window.waiting.len() >= MAX_WAITING_COMMANDS {
            return Err(Error::TooManyCommands { limit: MAX_WAITING_COMMANDS });
        }
        window.waiting.push_back(Job { command, done: Box::new(done), adapter: Arc::clone(self) });
        self.start_next(&mut window);
        Ok(Submitted::Pending)
    }

    /// Hands a command to the card that takes something away. Cannot fail; on a card that is gone `done` is called at once.
    pub(crate) fn submit_teardown(
        self: &Arc<Self>,
        command: Command,
        done: impl FnOnce(&Arc<Adapter>, Result<CommandResult, Error>) + Send + 'static,
    ) {
        let mut window = lock(&self.window);
        if window.removed {
            drop(window);
            return done(self, Err(Error::DeviceRemoved { register: "CmdStatus" }));
        }
        window.waiting.push_back(Job { command, done: Box::new(done), adapter: Arc::clone(self) });
        self.start_next(&mut window);
    }

    /// Reads the status register. If the command under way is done, or the card is gone, that is worked off by the next
    /// [`Adapter::process_events`], and this returns true.
    ///
    /// For the case that events do not come through; blocking calls use it by themselves. Nothing else notices a card that is gone while it
    /// has no command. Then every command fails with [`Error::DeviceRemoved`], every QP with [`QpFault::DeviceRemoved`](crate::qp::QpFault), and
    /// what is outstanding completes as flushed.
    pub fn poll_command(self: &Arc<Self>) -> bool {
        let expected = {
            let window = lock(&self.window);
            if window.removed {
                return false;
            }
            window.with_card.as_ref().map(|(tag, _)| *tag)
        };
        let status = self.bar().read32(CmdStatus::OFFSET);
        if status == u32::MAX {
            let adapter = Arc::clone(self);
            self.defer(move || adapter.remove("CmdStatus"));
            return true;
        }
        let Some(expected) = expected else { return false };
        // A command that the card has not seen yet shows as another tag.
        if CmdStatus::BUSY.get(status) == 1 || CmdStatus::TAG.get(status) != u32::from(expected) {
            return false;
        }
        let adapter = Arc::clone(self);
        self.defer(move || {
            adapter.finish_command(expected, CmdStatus::CODE.get(status) as u8);
        });
        true
    }

    /// Finishes the command with `tag`. Returns whether there was one. Runs its callback, so only inside [`Adapter::process_events`].
    pub(crate) fn finish_command(self: &Arc<Self>, tag: u16, code: u8) -> bool {
        let mut window = lock(&self.window);
        let Some((_, job)) = window.with_card.take_if(|(with_card, _)| *with_card == tag) else {
            return false;
        };
        let mut result = [0; 8];
        // The results must be read before the next command overwrites them: accesses of `Bar` keep their order.
        // When this command has ended a use of memory, the card's last writes into it have arrived. The status or the event that
        // told us so came behind them on PCIe, where neither an answer nor a write overtakes a write.
        for (index, word) in result.iter_mut().enumerate().take(job.command.results) {
            *word = self.bar().read32(CmdResult::OFFSET + 4 * index as u32);
        }
        let is_gone = job.command.results > 0 && result[..job.command.results].iter().all(|word| *word == u32::MAX);
        if is_gone {
            // Ends with all others.
            window.with_card = Some((tag, job));
            drop(window);
            self.remove("CmdResult");
            return true;
        }
        self.start_next(&mut window);
        drop(window);
        let (op, number) = (job.command.op, job.command.number);
        let outcome = match CommandCode::try_from(code) {
            Ok(CommandCode::Ok) => Ok(result),
            Ok(code) => Err(Error::CommandRefused { op, number, code }),
            Err(unknown) => Err(Error::BadAnswer { op, number, value: u32::from(unknown.0) }),
        };
        if let Err(error) = &outcome {
            tracing::debug!(%error, "command failed");
        }
        (job.done)(&job.adapter, outcome);
        true
    }

    /// Marks the card as gone and ends everything that is under way. Runs callbacks, so only inside [`Adapter::process_events`].
    fn remove(self: &Arc<Self>, register: &'static str) {
        if lock(&self.window).removed {
            return;
        }
        tracing::error!(register, "the card is gone");
        // First: an object that leaves from here on, with its command or without one, leaves its completions behind.
        self.lose_queues();
        let jobs: Vec<Job> = {
            let mut window = lock(&self.window);
            window.removed = true;
            let with_card = window.with_card.take().map(|(_, job)| job);
            with_card.into_iter().chain(window.waiting.drain(..)).collect()
        };
        self.fail_qps();
        for job in jobs {
            (job.done)(&job.adapter, Err(Error::DeviceRemoved { register }));
        }
    }

    /// Writes the next command to the window if the card has none. The lock makes the window ours alone.
    fn start_next(&self, window: &mut CommandWindow) {
        if window.with_card.is_some() {
            return;
        }
        let Some(job) = window.waiting.pop_front() else { return };
        // 0 is what the status register shows before the first command.
        window.last_tag = window.last_tag.checked_add(1).unwrap_or(1);
        let tag = window.last_tag;
        for (index, word) in job.command.args.iter().enumerate().take(job.command.words) {
            self.bar().write32(CmdArgs::OFFSET + 4 * index as u32, *word);
        }
        let go = CmdGo::reset().with(CmdGo::OPCODE, job.command.op as u32).with(CmdGo::TAG, u32::from(tag));
        window.with_card = Some((tag, job));
        // Behind the arguments, and behind what was written into the memory that they name: a ring's zeroes (order of `Bar`).
        self.bar().write32(CmdGo::OFFSET, go.raw());
    }
}
