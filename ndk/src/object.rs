//! What all objects have: header, table, and the end of their life.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use verbena_host::ndk::NtStatus;
use verbena_host::{Adapter, Error};

use crate::abi::*;

/// A kind of object: what is behind the header.
pub(crate) trait Kind: Send + Sync + Sized + 'static {
    /// The object as the interface declares it.
    type Public;
    /// Its table.
    type Dispatch: 'static;
    /// Its number.
    const TYPE: NDK_OBJECT_TYPE;
    /// Its functions.
    const TABLE: &'static Self::Dispatch;

    /// Starts what lets pending requests end, when the consumer closes the object and others may still hold it.
    fn stop(&self) {}
}

/// An object. Starts like [`Kind::Public`]; the consumer's side may write header and table, which are never read here.
#[repr(C)]
pub(crate) struct Object<K: Kind> {
    header: UnsafeCell<NDK_OBJECT_HEADER>,
    dispatch: UnsafeCell<*const K::Dispatch>,
    kind: K,
}

// SAFETY: header and table belong to the consumer after `new` and are not touched here; `kind` is `Send` and `Sync`.
unsafe impl<K: Kind> Send for Object<K> {}
// SAFETY: as above.
unsafe impl<K: Kind> Sync for Object<K> {}

impl<K: Kind> Deref for Object<K> {
    type Target = K;
    fn deref(&self) -> &K {
        &self.kind
    }
}

impl<K: Kind> Object<K> {
    /// Returns an object with its header filled in.
    pub(crate) fn new(version: NDK_VERSION, kind: K) -> Arc<Self> {
        let reserved = NDK_OBJECT_HEADER_RESERVED_BLOCK { rf: [std::ptr::null_mut(); 4] };
        let header = NDK_OBJECT_HEADER { Version: version, ObjectType: K::TYPE, NdkReserved: reserved };
        Arc::new(Self { header: UnsafeCell::new(header), dispatch: UnsafeCell::new(K::TABLE), kind })
    }

    /// Returns the pointer that the consumer gets, which carries one count.
    pub(crate) fn into_public(self: Arc<Self>) -> *mut K::Public {
        Arc::into_raw(self).cast_mut().cast()
    }

    /// Returns the object behind a pointer, or nothing for null.
    ///
    /// # Safety
    /// The pointer is null or was given by [`Object::into_public`], and the consumer has not closed the object.
    pub(crate) unsafe fn borrow<'a>(pointer: *mut K::Public) -> Option<&'a Self> {
        // SAFETY: the caller vouches for the pointer, whose count keeps the object.
        unsafe { pointer.cast::<Self>().as_ref() }
    }

    /// Returns a count of one's own on the object, or nothing for null.
    ///
    /// # Safety
    /// As [`Object::borrow`].
    pub(crate) unsafe fn share(pointer: *mut K::Public) -> Option<Arc<Self>> {
        if pointer.is_null() {
            return None;
        }
        let pointer: *const Self = pointer.cast();
        // SAFETY: the pointer came from `Arc::into_raw`, and the consumer's count is still there.
        unsafe {
            Arc::increment_strong_count(pointer);
            Some(Arc::from_raw(pointer))
        }
    }

    /// Takes the consumer's count back.
    ///
    /// # Safety
    /// As [`Object::borrow`], and the pointer is not used any more.
    unsafe fn take(pointer: *mut K::Public) -> Arc<Self> {
        // SAFETY: the pointer came from `Arc::into_raw`, and this is the one time that its count is taken back.
        unsafe { Arc::from_raw(pointer.cast::<Self>().cast_const()) }
    }
}

/// A context of the consumer's: a pointer that is handed back and never followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context(PVOID);

// SAFETY: a number, as far as this crate goes. The consumer's callbacks may be called by any thread, by contract.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(pointer: PVOID) -> Self {
        Self(pointer)
    }

    pub(crate) fn pointer(self) -> PVOID {
        self.0
    }
}

/// The close completion of an object.
#[derive(Clone, Copy, Debug)]
struct Closing {
    completion: NDK_FN_CLOSE_COMPLETION,
    context: Context,
}

impl Closing {
    /// Calls it.
    fn call(self) {
        if let Some(completion) = self.completion {
            // SAFETY: the consumer gave function and context for this call, which is the last one for the object.
            unsafe { completion(self.context.pointer()) };
        }
    }
}

/// Where an object keeps its close completion until nobody holds it any more.
#[derive(Debug, Default)]
pub(crate) struct ClosingSlot(Mutex<Option<Closing>>);

impl ClosingSlot {
    /// Returns what ends the close: dropped when the driver's object has left the card, it has the completion called where callbacks belong,
    /// and then lets go of the antecedents.
    pub(crate) fn finish<H: Send + 'static>(&self, adapter: &Arc<Adapter>, antecedents: H) -> Finish<H> {
        // There is none if the consumer has never got the object.
        let closing = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Finish { adapter: Arc::clone(adapter), rest: Some((closing, antecedents)) }
    }
}

/// See [`ClosingSlot::finish`].
pub(crate) struct Finish<H: Send + 'static> {
    adapter: Arc<Adapter>,
    rest: Option<(Option<Closing>, H)>,
}

impl<H: Send + 'static> Drop for Finish<H> {
    fn drop(&mut self) {
        let Some((closing, antecedents)) = self.rest.take() else { return };
        self.adapter.defer(move || {
            if let Some(closing) = closing {
                closing.call();
            }
            drop(antecedents);
        });
    }
}

/// An object whose close may take time.
pub(crate) trait Closable: Kind {
    /// Where it keeps its close completion.
    fn closing(&self) -> &ClosingSlot;
}

/// `NDK_FN_CLOSE_OBJECT`. The completion is called by the drop of the kind, when that has left the card.
///
/// # Safety
/// As [`Object::borrow`], and the pointer is not used any more.
pub(crate) unsafe extern "C" fn close<K: Closable>(
    object: *mut NDK_OBJECT_HEADER,
    completion: NDK_FN_CLOSE_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    if object.is_null() {
        return status(NtStatus::SUCCESS);
    }
    // SAFETY: the caller vouches for the pointer and gives it up.
    let object = unsafe { Object::<K>::take(object.cast()) };
    *object.closing().0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Closing { completion, context: Context::new(context) });
    object.stop();
    drop(object);
    status(NtStatus::PENDING)
}

/// `NDK_FN_QUERY_EXTENSION_INTERFACE`: there are no extensions.
pub(crate) unsafe extern "C" fn query_extension(
    _object: *mut NDK_OBJECT_HEADER,
    _id: *mut GUID,
    _version: NDK_VERSION,
    _interface: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    status(NtStatus::NOT_SUPPORTED)
}

/// The completion of a creation.
#[derive(Clone, Copy)]
pub(crate) struct Creation {
    completion: unsafe extern "C" fn(PVOID, NTSTATUS, *mut NDK_OBJECT_HEADER),
    context: Context,
}

impl Creation {
    /// Returns it, or nothing if the consumer gave no function.
    pub(crate) fn new(completion: NDK_FN_CREATE_COMPLETION, context: PVOID) -> Option<Self> {
        Some(Self { completion: completion?, context: Context::new(context) })
    }

    /// Hands over what was created, or says why nothing was.
    pub(crate) fn call<K: Kind>(self, outcome: Result<Arc<Object<K>>, Error>) {
        let (result, object, hold) = match outcome {
            // A count of its own: the consumer may close the object inside the callback, which may not be over before that is.
            Ok(object) => (NtStatus::SUCCESS, Arc::clone(&object).into_public().cast(), Some(object)),
            Err(error) => (error.nt_status(), std::ptr::null_mut(), None),
        };
        // SAFETY: the consumer gave function and context for this one call.
        unsafe { (self.completion)(self.context.pointer(), status(result), object) };
        drop(hold);
    }
}

/// The completion of a request.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    completion: unsafe extern "C" fn(PVOID, NTSTATUS),
    context: Context,
}

impl Request {
    /// Returns it, or nothing if the consumer gave no function.
    pub(crate) fn new(completion: NDK_FN_REQUEST_COMPLETION, context: PVOID) -> Option<Self> {
        Some(Self { completion: completion?, context: Context::new(context) })
    }

    /// Tells the outcome.
    pub(crate) fn call(self, outcome: Result<(), Error>) {
        let result = outcome.map_or_else(|error| error.nt_status(), |()| NtStatus::SUCCESS);
        // SAFETY: the consumer gave function and context for this one call.
        unsafe { (self.completion)(self.context.pointer(), status(result)) };
    }
}

/// Returns the number that the interface has for a status.
pub(crate) const fn status(status: NtStatus) -> NTSTATUS {
    status.0 as NTSTATUS
}

/// Returns the status of a call that failed.
pub(crate) fn failed(error: &Error) -> NTSTATUS {
    status(error.nt_status())
}

/// Returns a slice of what the consumer points to; no entries may come with a null pointer. Nothing if it is null with entries.
///
/// # Safety
/// The pointer is valid for `count` entries during the call.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> Option<&'a [T]> {
    match (pointer.is_null(), count) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        // SAFETY: the caller vouches for it.
        (false, _) => Some(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Returns bytes that the consumer points to, as [`slice`] does.
///
/// # Safety
/// As [`slice`].
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, count: ULONG) -> Option<&'a [u8]> {
    // SAFETY: the caller vouches for it.
    unsafe { slice(pointer.cast(), count as usize) }
}
