//! Memory regions: memory that requests of this end and of peers may name by a key.

use std::sync::{Arc, Mutex};

use verbena_abi::queue::{access, CmdMr, CommandOp, Key};

use crate::adapter::Adapter;
use crate::command::{CloseCallback, CloseStatus, Command, Submitted};
use crate::dma::DmaBuffer;
use crate::error::Error;
use crate::lock;
use crate::pd::Pd;

/// Most pages of a fast registration: 1 MiB of 4 KiB pages.
pub const MAX_FAST_PAGES: u32 = 256;

/// All rights that a region can give.
const ALL_RIGHTS: u8 = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;

/// A registered memory region. Keeps its memory until it has left the card, or the card has refused to let it go.
pub struct Mr {
    pd: Arc<Pd>,
    key: Key,
    /// Taken by the drop alone.
    memory: Option<DmaBuffer>,
    base_va: u64,
    access: u8,
    on_close: Mutex<Vec<CloseCallback>>,
}

impl std::fmt::Debug for Mr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mr(key {:#010x}, {} bytes at {:#x})", self.key.0, self.memory().len(), self.base_va)
    }
}

impl Mr {
    /// Registers all of `memory` ([`DmaBuffer::part`] makes a part of it) with bits of [`access`].
    ///
    /// The address by which SGEs and peers name the first byte is its process address, [`DmaBuffer::va`].
    /// Reading as a local source needs no right.
    ///
    /// Fails inline with [`Error::BadFlags`], [`Error::BelowMinimum`] for no bytes,
    /// [`Error::OutOfNumbers`], or the errors of a command; `done` gets the card's refusal.
    pub fn register(
        pd: &Arc<Pd>,
        memory: DmaBuffer,
        access: u8,
        done: impl FnOnce(Result<Arc<Self>, Error>) + Send + 'static,
    ) -> Result<Submitted, Error> {
        let base_va = memory.va();
        Self::register_at(pd, memory, base_va, access, done)
    }

    /// Does what [`Mr::register`] does, with an address of the caller's choice for the first byte.
    pub fn register_at(
        pd: &Arc<Pd>,
        memory: DmaBuffer,
        base_va: u64,
        access: u8,
        done: impl FnOnce(Result<Arc<Self>, Error>) + Send + 'static,
    ) -> Result<Submitted, Error> {
        if access & !ALL_RIGHTS != 0 {
            return Err(Error::BadFlags { what: "access", flags: access.into(), known: ALL_RIGHTS.into() });
        }
        if memory.is_empty() {
            return Err(Error::BelowMinimum { what: "registration length", value: 0, min: 1 });
        }
        // The card takes no region whose end, the address behind the last byte, does not fit into 64 bits.
        let room = u64::MAX - base_va;
        if memory.len() as u64 > room {
            return Err(Error::AboveLimit { what: "registration length", value: memory.len() as u64, limit: room });
        }
        let adapter = pd.adapter();
        let key = take_key(adapter)?;
        let args = CmdMr {
            key: key.0.into(),
            pd: pd.label().into(),
            access,
            base_va: base_va.into(),
            len_bytes: (memory.len() as u64).into(),
            iova: memory.iova().into(),
            ..Default::default()
        };
        let pd = Arc::clone(pd);
        let submitted = adapter.submit(Command::create_mr(&args), move |adapter, outcome| {
            if let Err(error) = outcome {
                pd.retired(adapter.retire_region(key.index(), memory, Some(&error)));
                return done(Err(error));
            }
            done(Ok(Arc::new(Self { pd, key, memory: Some(memory), base_va, access, on_close: Mutex::default() })));
        });
        submitted.inspect_err(|_| adapter.give_back_number(|numbers| &mut numbers.mrs, key.index()))
    }

    /// Does what [`Mr::register`] does and waits for the result; see [`Adapter::block_on`] for bound and errors.
    pub fn register_blocking(pd: &Arc<Pd>, memory: DmaBuffer, access: u8) -> Result<Arc<Self>, Error> {
        pd.adapter().block_on("a memory region to be registered", |done| Self::register(pd, memory, access, done))
    }

    /// Does what [`Mr::register_at`] does and waits for the result; see [`Adapter::block_on`] for bound and errors.
    pub fn register_at_blocking(pd: &Arc<Pd>, memory: DmaBuffer, base_va: u64, access: u8) -> Result<Arc<Self>, Error> {
        pd.adapter().block_on("a memory region to be registered", |done| Self::register_at(pd, memory, base_va, access, done))
    }

    /// Returns the key for SGEs of this end.
    pub fn lkey(&self) -> u32 {
        self.key.0
    }

    /// Returns the key for the peer. Never 0.
    pub fn rkey(&self) -> u32 {
        self.key.0
    }

    /// Returns the address by which SGEs and peers name the first byte.
    pub fn base_va(&self) -> u64 {
        self.base_va
    }

    /// Returns the rights, bits of [`access`].
    pub fn access(&self) -> u8 {
        self.access
    }

    /// Returns the memory.
    pub fn memory(&self) -> &DmaBuffer {
        self.memory.as_ref().expect("taken by the drop alone")
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Deregisters the region as soon as no other handle is left. When its key is refused and no
    /// access through it is under way any more, `done` is called.
    pub fn close(self: Arc<Self>, done: impl FnOnce() + Send + 'static) -> CloseStatus {
        lock(&self.on_close).push(Box::new(done));
        CloseStatus::Pending
    }

    /// Deregisters the region and waits until it has left the card; see [`Adapter::block_on`] for bound and errors.
    pub fn close_blocking(self: Arc<Self>) -> Result<(), Error> {
        let adapter = Arc::clone(self.pd.adapter());
        adapter.block_on_close(&format!("memory region {:#010x} to be closed", self.key.0), |done| self.close(done))
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // Taken, so that it is gone when the callbacks run.
        let (key, pd, Some(memory)) = (self.key, Arc::clone(&self.pd), self.memory.take()) else { return };
        let on_close = std::mem::take(&mut *lock(&self.on_close));
        self.pd.adapter().submit_teardown(Command::naming(CommandOp::DestroyMr, key.0), move |adapter, outcome| {
            pd.retired(adapter.retire_region(key.index(), memory, outcome.err().as_ref()));
            for done in on_close {
                done();
            }
            // After the callbacks have returned: the domain's close may not be over before them.
            drop(pd);
        });
    }
}

/// All memory that the card reaches, by bus addresses, for requests of this end alone: what NDK's privileged token names.
///
/// A peer that uses its key is refused, as with any region without a remote right.
#[derive(Debug)]
pub struct PrivilegedMr {
    pd: Arc<Pd>,
    key: Key,
}

impl PrivilegedMr {
    /// Registers it. Errors as those of [`Mr::register`].
    pub fn register(pd: &Arc<Pd>, done: impl FnOnce(Result<Self, Error>) + Send + 'static) -> Result<Submitted, Error> {
        let adapter = pd.adapter();
        let key = take_key(adapter)?;
        let args = CmdMr {
            key: key.0.into(),
            pd: pd.label().into(),
            access: access::LOCAL_WRITE,
            // All addresses but the last one: the end must fit into 64 bits. An SGE names a byte by its bus address.
            len_bytes: u64::MAX.into(),
            ..Default::default()
        };
        let pd = Arc::clone(pd);
        let submitted = adapter.submit(Command::create_mr(&args), move |adapter, outcome| {
            if let Err(error) = outcome {
                pd.retired(adapter.retire(|numbers| &mut numbers.mrs, key.index(), (), Some(&error)));
                return done(Err(error));
            }
            done(Ok(Self { pd, key }));
        });
        submitted.inspect_err(|_| adapter.give_back_number(|numbers| &mut numbers.mrs, key.index()))
    }

    /// Returns the key for SGEs of this end. Never 0.
    pub fn lkey(&self) -> u32 {
        self.key.0
    }
}

impl Drop for PrivilegedMr {
    fn drop(&mut self) {
        let (key, pd) = (self.key, Arc::clone(&self.pd));
        self.pd.adapter().submit_teardown(Command::naming(CommandOp::DestroyMr, key.0), move |adapter, outcome| {
            pd.retired(adapter.retire(|numbers| &mut numbers.mrs, key.index(), (), outcome.err().as_ref()));
            drop(pd);
        });
    }
}

/// A key for a region whose pages a request is to name later (NDK's fast registration). The card knows nothing of it yet, so it
/// refuses whoever uses the key.
#[derive(Debug)]
pub struct FastMr {
    pd: Arc<Pd>,
    key: Key,
    max_pages: u32,
    is_remote: bool,
}

impl FastMr {
    /// Reserves a key for up to `max_pages` pages; `is_remote` says whether a peer may ever be given a right. Fails with
    /// [`Error::TooManyPages`] or [`Error::OutOfNumbers`].
    pub fn reserve(pd: &Arc<Pd>, max_pages: u32, is_remote: bool) -> Result<Self, Error> {
        if max_pages == 0 || max_pages > MAX_FAST_PAGES {
            return Err(Error::TooManyPages { pages: max_pages, limit: MAX_FAST_PAGES });
        }
        Ok(Self { pd: Arc::clone(pd), key: take_key(pd.adapter())?, max_pages, is_remote })
    }

    /// Returns the key, for SGEs of this end and for peers. Never 0, and the same as long as the region lives.
    pub fn key(&self) -> u32 {
        self.key.0
    }

    /// Returns the most pages of a registration.
    pub fn max_pages(&self) -> u32 {
        self.max_pages
    }

    /// Tells whether a peer may ever be given a right.
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }
}

impl Drop for FastMr {
    fn drop(&mut self) {
        self.pd.adapter().give_back_number(|numbers| &mut numbers.mrs, self.key.index());
    }
}

/// Takes a region's index and gives it a key that differs from the last 255 of that index.
fn take_key(adapter: &Adapter) -> Result<Key, Error> {
    let mut numbers = lock(&adapter.numbers);
    let index = numbers.mrs.take()?;
    let tag = numbers.key_tags.get_mut(index as usize).map_or(0, |tag| {
        *tag = tag.wrapping_add(1);
        *tag
    });
    Ok(Key::new(index, tag))
}
