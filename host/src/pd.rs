//! Protection domains: labels that tie QPs and regions together. The card keeps no state for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::adapter::Adapter;
use crate::command::{CloseCallback, CloseStatus};
use crate::error::Error;
use crate::lock;

/// A protection domain. A QP reaches the regions of its own domain and no others.
pub struct Pd {
    adapter: Arc<Adapter>,
    label: u16,
    /// Something of the domain is left on the card, so the label is not for another one.
    is_label_kept: AtomicBool,
    on_close: Mutex<Vec<CloseCallback>>,
}

impl std::fmt::Debug for Pd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pd({})", self.label)
    }
}

impl Pd {
    /// Creates a domain, without the card taking part. Fails with [`Error::OutOfNumbers`].
    pub fn create(adapter: &Arc<Adapter>) -> Result<Arc<Self>, Error> {
        let label = adapter.take_number(|numbers| &mut numbers.pds)?;
        // Labels have 16 bits because the capability was checked for that.
        Ok(Arc::new(Self {
            adapter: Arc::clone(adapter),
            label: label as u16,
            is_label_kept: AtomicBool::new(false),
            on_close: Mutex::default(),
        }))
    }

    /// Returns the label that the card compares.
    pub fn label(&self) -> u16 {
        self.label
    }

    /// Returns the adapter.
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// Notes that an object of the domain has ended; the card may not have given it up.
    pub(crate) fn retired(&self, is_off_the_card: bool) {
        if !is_off_the_card {
            self.is_label_kept.store(true, Ordering::Release);
        }
    }

    /// Closes the domain: at once if this was the last handle and no QP or region is left in it,
    /// else when the last of them is gone.
    pub fn close(self: Arc<Self>, done: impl FnOnce() + Send + 'static) -> CloseStatus {
        match Arc::try_unwrap(self) {
            Ok(_last) => CloseStatus::Closed,
            Err(pd) => {
                lock(&pd.on_close).push(Box::new(done));
                CloseStatus::Pending
            }
        }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if !self.is_label_kept.load(Ordering::Acquire) {
            self.adapter.give_back_number(|numbers| &mut numbers.pds, u32::from(self.label));
        }
        for done in std::mem::take(&mut *lock(&self.on_close)) {
            done();
        }
    }
}
