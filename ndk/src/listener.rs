//! Listeners.

use std::sync::{Arc, OnceLock, Weak};

use verbena_host::cm::{Connector, Listener};
use verbena_host::ndk::NtStatus;

use crate::abi::*;
use crate::adapter::AdapterObject;
use crate::address;
use crate::connector::ConnectorObject;
use crate::object::{close, failed, query_extension, status, Closable, ClosingSlot, Context, Kind, Object};

pub(crate) struct ListenerObject {
    listener: OnceLock<Arc<Listener>>,
    adapter: Arc<Object<AdapterObject>>,
    closing: ClosingSlot,
}

impl Kind for ListenerObject {
    type Public = NDK_LISTENER;
    type Dispatch = NDK_LISTENER_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeListener;
    const TABLE: &'static NDK_LISTENER_DISPATCH = &NDK_LISTENER_DISPATCH {
        NdkCloseListener: Some(close::<ListenerObject>),
        NdkQueryExtension: Some(query_extension),
        NdkListen: Some(listen),
        NdkGetLocalAddress: Some(local_address),
        NdkControlConnectEvents: Some(control_events),
    };

    /// Refuses whoever comes from now on, although connectors may keep the object.
    fn stop(&self) {
        if let Some(listener) = self.listener.get() {
            listener.pause(true);
        }
    }
}

impl Closable for ListenerObject {
    fn closing(&self) -> &ClosingSlot {
        &self.closing
    }
}

impl Drop for ListenerObject {
    fn drop(&mut self) {
        let host = Arc::clone(self.adapter.host());
        let finish = self.closing.finish(&host, Arc::clone(&self.adapter));
        self.listener.take();
        drop(finish);
    }
}

/// `NDK_FN_CREATE_LISTENER`.
pub(crate) unsafe extern "C" fn create(
    adapter: *mut NDK_ADAPTER,
    connect_event: NDK_FN_CONNECT_EVENT_CALLBACK,
    event_context: PVOID,
    completion: NDK_FN_CREATE_COMPLETION,
    _context: PVOID,
    out: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live adapter and a place for the object.
    let (adapter, out) = unsafe { (Object::<AdapterObject>::share(adapter), out.as_mut()) };
    let (Some(adapter), Some(out), Some(connect_event), Some(_)) = (adapter, out, connect_event, completion) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let (version, manager) = (adapter.version, Arc::clone(adapter.manager()));
    let object = Object::new(version, ListenerObject { listener: OnceLock::new(), adapter, closing: ClosingSlot::default() });
    let (event_context, this) = (Context::new(event_context), Arc::downgrade(&object));
    let listener = manager.listener(Box::new(move |connector| deliver(&this, connector, connect_event, event_context)));
    let _ = object.listener.set(listener);
    *out = object.into_public();
    status(NtStatus::SUCCESS)
}

/// Hands a connector to the consumer, whose it is from then on. It holds the listener.
fn deliver(
    listener: &Weak<Object<ListenerObject>>,
    connector: Arc<Connector>,
    connect_event: unsafe extern "C" fn(PVOID, *mut NDK_CONNECTOR),
    event_context: Context,
) {
    // A listener that is gone by now: the connector is dropped, which rejects the request.
    let Some(listener) = listener.upgrade() else { return };
    let object = ConnectorObject::create(Arc::clone(&listener.adapter), connector, Some(listener));
    // SAFETY: the consumer gave function and context for these calls, the last of which is over before the listener's close is.
    unsafe { connect_event(event_context.pointer(), object.into_public()) };
}

unsafe extern "C" fn listen(
    listener: *mut NDK_LISTENER,
    at: *const SOCKADDR,
    at_bytes: ULONG,
    _completion: NDK_FN_REQUEST_COMPLETION,
    _context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live listener and an address.
    let (listener, at) = unsafe { (Object::<ListenerObject>::borrow(listener), address::read(at, at_bytes)) };
    let (Some(listener), Some(at)) = (listener.and_then(|object| object.listener.get()), at) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    match listener.listen(at) {
        Ok(()) => status(NtStatus::SUCCESS),
        Err(error) => failed(&error),
    }
}

unsafe extern "C" fn local_address(listener: *mut NDK_LISTENER, to: *mut SOCKADDR, len: *mut ULONG) -> NTSTATUS {
    // SAFETY: the consumer gives a live listener and a place for the address.
    unsafe {
        let Some(object) = Object::<ListenerObject>::borrow(listener) else { return status(NtStatus::INVALID_PARAMETER) };
        address::write(object.listener.get().and_then(|listener| listener.address()), to, len)
    }
}

unsafe extern "C" fn control_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    // SAFETY: the consumer gives a live listener.
    if let Some(listener) = unsafe { Object::<ListenerObject>::borrow(listener) }.and_then(|object| object.listener.get()) {
        listener.pause(pause != 0);
    }
}
