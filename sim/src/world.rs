//! Two cards, each in a host of its own, joined by a link.
//!
//! The host's code and the cards take turns: while [`World::run`] runs, the cards' clocks go on;
//! between two calls they stand still, at the same number. Each card may run in a thread of its own:
//! a frame is known [`LinkConfig::look_ahead_clocks`] before it arrives, so a card may be ahead of the
//! other by that, and no outcome depends on the threads.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::card::{Card, CardCounts};
use crate::fault::Fault;
use crate::ffi::CoreModel;
use crate::link::{LinkConfig, Loss, Wire};
use crate::pcap;
use crate::pcie::PcieConfig;
use crate::sim_device::SimDevice;
use crate::tap::Passed;

/// Clocks below which a run is not worth waking a thread.
const SHORT_RUN: u64 = 100;

/// Whether each card runs in a thread of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// If the machine has two processors and the link's latency leaves room.
    #[default]
    Auto,
    /// Never.
    One,
    /// Always.
    Two,
}

/// A simulation.
#[derive(Clone, Debug, Default)]
pub struct WorldConfig {
    /// Everything that happens by chance comes from it.
    pub seed: u64,
    /// Both hosts' PCIe.
    pub pcie: PcieConfig,
    /// The link between the cards.
    pub link: LinkConfig,
    /// Threads to use.
    pub threads: Threads,
    /// Where to write a capture of both directions.
    pub pcap: Option<PathBuf>,
    /// Where to dump the signals: card 0 to this FST file, card 1 to one with `-b` behind its name.
    pub trace: Option<PathBuf>,
}

impl WorldConfig {
    /// Makes every ready and valid pause by chance, in `percent` of a hundred clocks, at all ports of both cards.
    #[must_use]
    pub fn with_stalls(mut self, percent: u8) -> Self {
        self.pcie.stall_percent = percent;
        self.link.stall_percent = percent;
        self
    }

    /// Returns the two files of [`WorldConfig::trace`].
    pub fn trace_files(&self) -> Option<[PathBuf; 2]> {
        let first = self.trace.clone()?;
        let mut name = first.file_stem().unwrap_or_default().to_owned();
        name.push("-b.fst");
        let second = first.with_file_name(name);
        Some([first, second])
    }
}

/// A card and its published progress.
#[derive(Debug)]
struct Lane {
    card: Mutex<Card>,
    done: AtomicU64,
}

impl Lane {
    fn card(&self) -> MutexGuard<'_, Card> {
        self.card.lock().expect("no card panicked")
    }
}

/// What the thread of card 1 shares.
#[derive(Debug)]
struct Shared {
    lanes: [Lane; 2],
    goal: AtomicU64,
    quit: AtomicBool,
}

/// Two cards and the link between them.
#[derive(Debug)]
pub struct World {
    shared: Arc<Shared>,
    window: u64,
    worker: Option<JoinHandle<()>>,
    /// Held while the clocks run, and by whoever touches a card between.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    clock: u64,
    fault: Option<Fault>,
    capture: Option<pcap::Writer>,
    ran: Duration,
}

impl World {
    /// Returns two cards in reset. Fails if a file can't be written.
    pub fn new(config: &WorldConfig) -> io::Result<Arc<Self>> {
        let wires = [Arc::new(Wire::default()), Arc::new(Wire::default())];
        let files = config.trace_files();
        let card = |number: usize| -> io::Result<Card> {
            let model = files.as_ref().map_or_else(|| Ok(CoreModel::new()), |files| CoreModel::with_trace(&files[number]))?;
            let ends = [wires[number].clone(), wires[1 - number].clone()];
            Ok(Card::new(number, model, config.seed, config.pcie, config.link, ends))
        };
        let mut cards = [card(0)?, card(1)?];
        let capture = config.pcap.as_deref().map(pcap::Writer::create).transpose()?;
        if capture.is_some() {
            cards.iter_mut().for_each(|card| card.mac_tx().capture());
        }
        let lanes = cards.map(|card| Lane { card: Mutex::new(card), done: AtomicU64::new(0) });
        let shared = Arc::new(Shared { lanes, goal: AtomicU64::new(0), quit: AtomicBool::new(false) });
        let window = config.link.look_ahead_clocks();
        let threaded = match config.threads {
            Threads::One => false,
            Threads::Two => true,
            Threads::Auto => window > 16 && thread::available_parallelism().is_ok_and(|processors| processors.get() > 1),
        };
        let worker = if threaded {
            let shared = shared.clone();
            Some(thread::Builder::new().name("card 1".into()).spawn(move || work(&shared, window))?)
        } else {
            None
        };
        let state = Mutex::new(State { clock: 0, fault: None, capture, ran: Duration::ZERO });
        Ok(Arc::new(Self { shared, window, worker, state }))
    }

    /// Returns card `number` (0 or 1) as the driver sees it.
    pub fn device(self: &Arc<Self>, number: usize) -> Arc<SimDevice> {
        assert!(number < 2, "there are two cards");
        Arc::new(SimDevice::new(self.clone(), number))
    }

    /// Returns the number of clocks that are done.
    pub fn clock(&self) -> u64 {
        self.lock().clock
    }

    /// Returns the time that the clocks took so far.
    pub fn ran(&self) -> Duration {
        self.lock().ran
    }

    /// Returns what card `number` has done.
    pub fn counts(&self, number: usize) -> CardCounts {
        let _state = self.lock();
        self.shared.lanes[number].card().counts()
    }

    /// Returns the fault that stopped the world, if there was one.
    pub fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    /// Gives the cards `clocks` clocks. A world that had a fault stays at the same error.
    pub fn run(&self, clocks: u64) -> Result<(), Fault> {
        self.advance(&mut self.lock(), clocks)
    }

    /// Runs until `condition` holds, which is asked every `step` clocks, and fails if that takes more than `limit`.
    pub fn run_until(&self, step: u64, limit: u64, what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Fault> {
        let start = self.clock();
        while !condition() {
            let waited = self.clock() - start;
            if waited >= limit {
                return Err(Fault::Timeout { clock: self.clock(), waited, what: what.to_owned() });
            }
            self.run(step)?;
        }
        Ok(())
    }

    /// Loses from now on those frames of card `number` for which `is_lost` says so; it is asked once for each, as it stands on the wire. The
    /// capture has them all the same.
    pub fn lose(&self, number: usize, is_lost: impl FnMut(&[u8]) -> bool + Send + 'static) {
        self.with_card(number, |card| card.mac_tx().lose(Some(Loss::new(is_lost))));
    }

    /// Loses no frames of card `number` but by chance.
    pub fn lose_none(&self, number: usize) {
        self.with_card(number, |card| card.mac_tx().lose(None));
    }

    /// Ends the capture, if there is one, and reports if it could not be written.
    pub fn finish_capture(&self) -> io::Result<()> {
        self.lock().capture.take().map_or(Ok(()), pcap::Writer::finish)
    }

    /// Returns what passed the ports of card `number` since the last call, oldest first; the record begins with the first call.
    pub fn take_tap(&self, number: usize) -> Vec<(u64, Passed)> {
        self.with_card(number, |card| card.tap().take())
    }

    /// Calls `f` with card `number` while the clocks stand still.
    pub(crate) fn with_card<R>(&self, number: usize, f: impl FnOnce(&mut Card) -> R) -> R {
        let _state = self.lock();
        f(&mut self.shared.lanes[number].card())
    }

    /// Reads a register of card `number`, running the clocks until the answer is back.
    pub(crate) fn read_register(&self, number: usize, offset: u32) -> Result<u32, Fault> {
        let mut state = self.lock();
        self.shared.lanes[number].card().read_register(offset);
        loop {
            self.advance(&mut state, 8)?;
            if let Some(value) = self.shared.lanes[number].card().take_register() {
                return Ok(value);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, state: &mut State, clocks: u64) -> Result<(), Fault> {
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let start = Instant::now();
        let goal = state.clock + clocks;
        let [first, second] = &self.shared.lanes;
        match &self.worker {
            Some(worker) if clocks >= SHORT_RUN => {
                self.shared.goal.store(goal, Ordering::Release);
                worker.thread().unpark();
                first.card().run_to(goal, self.window, &first.done, &second.done);
                while second.done.load(Ordering::Acquire) < goal {
                    thread::yield_now();
                }
            }
            _ => {
                let mut at = state.clock;
                while at < goal {
                    at = goal.min(at + self.window);
                    first.card().run_to(at, self.window, &first.done, &second.done);
                    second.card().run_to(at, self.window, &second.done, &first.done);
                }
            }
        }
        state.clock = goal;
        state.ran += start.elapsed();
        let mut cards = [first.card(), second.card()];
        // The earlier of two faults, so that the report does not depend on the threads.
        state.fault =
            cards.iter().filter(|card| card.fault().is_some()).min_by_key(|card| card.clock()).and_then(|card| card.fault().cloned());
        if let Some(capture) = &mut state.capture {
            let [(mut frames, one), (others, other)] = [0, 1].map(|number| cards[number].mac_tx().take_captured(goal));
            frames.extend(others);
            if let Err(error) = capture.write(frames, one.min(other)) {
                state.fault = Some(Fault::Capture { reason: error.to_string() });
            }
        }
        state.fault.clone().map_or(Ok(()), Err)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Release);
        if let Some(worker) = self.worker.take() {
            worker.thread().unpark();
            let _ = worker.join();
        }
    }
}

/// The thread of card 1.
fn work(shared: &Shared, window: u64) {
    let [first, second] = &shared.lanes;
    let mut idle = 0u32;
    while !shared.quit.load(Ordering::Acquire) {
        let goal = shared.goal.load(Ordering::Acquire);
        if second.done.load(Ordering::Acquire) < goal {
            idle = 0;
            second.card().run_to(goal, window, &second.done, &first.done);
        } else if idle < 1000 {
            // The next run often follows at once.
            idle += 1;
            std::hint::spin_loop();
        } else {
            thread::park();
            idle = 0;
        }
    }
}
