//! A card that executes commands, and then does nothing at a doorbell: what is measured is the driver.

#[path = "../../host/tests/driver/fake_card.rs"]
#[expect(dead_code, reason = "the driver's tests use more of it")]
mod fake_card;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use verbena_host::{Bar, Device, DmaBuffer, Error};

use fake_card::FakeCard;

/// The card of the driver's tests behind a BAR that can be made deaf.
pub(crate) struct QuietCard {
    card: Arc<FakeCard>,
    is_quiet: AtomicBool,
}

impl QuietCard {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { card: FakeCard::new(), is_quiet: AtomicBool::new(false) })
    }

    /// Writes to registers do nothing from now on.
    pub(crate) fn be_quiet(&self) {
        self.card.state().hold_requests = true;
        self.is_quiet.store(true, Ordering::Relaxed);
    }

    /// Finishes `count` requests of the one queue pair. Whatever lay in its CQ was polled.
    pub(crate) fn finish(&self, count: u16) {
        let mut state = self.card.state();
        for cq in state.cqs.values_mut() {
            cq.consumer = cq.producer;
        }
        let (qpn, qp) = state.qps.iter_mut().next().expect("a queue pair");
        let qpn = *qpn;
        qp.producer = qp.producer.wrapping_add(count);
        drop(state);
        self.card.complete(qpn, count);
        self.card.state().requests.clear();
    }
}

impl Bar for QuietCard {
    fn read32(&self, offset: u32) -> u32 {
        self.card.read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        if !self.is_quiet.load(Ordering::Relaxed) {
            self.card.write32(offset, value);
        }
    }
}

impl Device for QuietCard {
    fn bar(&self) -> &dyn Bar {
        self
    }

    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
        Arc::clone(&self.card).alloc(len, align)
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, Error> {
        // SAFETY: the caller's.
        unsafe { self.card.map(ptr, len) }
    }

    fn unmap(&self, iova: u64, len: usize) {
        self.card.unmap(iova, len);
    }

    fn take_interrupts(&self) -> u32 {
        self.card.take_interrupts()
    }

    fn wait(&self) {
        self.card.wait();
    }
}
