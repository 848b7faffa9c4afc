//! Connectors.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use verbena_host::cm::{Connector, DisconnectCallback, ReadLimits, Source};
use verbena_host::ndk::NtStatus;
use verbena_host::{Error, Submitted};

use crate::abi::*;
use crate::adapter::AdapterObject;
use crate::address;
use crate::endpoint::EndpointObject;
use crate::listener::ListenerObject;
use crate::object::{bytes, close, failed, query_extension, status, Closable, ClosingSlot, Context, Kind, Object, Request};
use crate::qp::QpObject;

pub(crate) struct ConnectorObject {
    connector: Option<Arc<Connector>>,
    adapter: Arc<Object<AdapterObject>>,
    held: Mutex<Held>,
    closing: ClosingSlot,
}

/// Antecedents that a connector gets when it connects.
#[derive(Default)]
struct Held {
    qp: Option<Arc<Object<QpObject>>>,
    endpoint: Option<Arc<Object<EndpointObject>>>,
    _listener: Option<Arc<Object<ListenerObject>>>,
}

impl Kind for ConnectorObject {
    type Public = NDK_CONNECTOR;
    type Dispatch = NDK_CONNECTOR_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeConnector;
    const TABLE: &'static NDK_CONNECTOR_DISPATCH = &NDK_CONNECTOR_DISPATCH {
        NdkCloseConnector: Some(close::<ConnectorObject>),
        NdkQueryExtension: Some(query_extension),
        NdkConnect: Some(connect),
        NdkConnectWithSharedEndpoint: Some(connect_with_shared_endpoint),
        NdkCompleteConnect: Some(complete_connect),
        NdkAccept: Some(accept),
        NdkReject: Some(reject),
        NdkGetConnectionData: Some(connection_data),
        NdkGetLocalAddress: Some(local_address),
        NdkGetPeerAddress: Some(peer_address),
        NdkDisconnect: Some(disconnect),
        NdkCompleteConnectEx: Some(complete_connect_ex),
        NdkAcceptEx: Some(accept_ex),
    };

    /// Lets pending requests end, each of which holds the object.
    fn stop(&self) {
        self.connector().abort();
    }
}

impl Closable for ConnectorObject {
    fn closing(&self) -> &ClosingSlot {
        &self.closing
    }
}

impl ConnectorObject {
    pub(crate) fn create(
        adapter: Arc<Object<AdapterObject>>,
        connector: Arc<Connector>,
        listener: Option<Arc<Object<ListenerObject>>>,
    ) -> Arc<Object<Self>> {
        let held = Mutex::new(Held { _listener: listener, ..Held::default() });
        let version = adapter.version;
        Object::new(version, Self { connector: Some(connector), adapter, held, closing: ClosingSlot::default() })
    }

    fn connector(&self) -> &Arc<Connector> {
        self.connector.as_ref().expect("taken by the drop alone")
    }

    /// Notes what the connector holds from now on. A connector that failed holds it until it is closed, which is harmless.
    fn hold(&self, qp: Arc<Object<QpObject>>, endpoint: Option<Arc<Object<EndpointObject>>>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.qp = Some(qp);
        held.endpoint = endpoint;
    }
}

impl Drop for ConnectorObject {
    fn drop(&mut self) {
        let Some(connector) = self.connector.take() else { return };
        let held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        let finish = self.closing.finish(self.adapter.host(), (held, Arc::clone(&self.adapter)));
        let _ = connector.close(move || drop(finish));
    }
}

/// `NDK_FN_CREATE_CONNECTOR`.
pub(crate) unsafe extern "C" fn create(
    adapter: *mut NDK_ADAPTER,
    completion: NDK_FN_CREATE_COMPLETION,
    _context: PVOID,
    out: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live adapter and a place for the object.
    let (adapter, out) = unsafe { (Object::<AdapterObject>::share(adapter), out.as_mut()) };
    let (Some(adapter), Some(out), Some(_)) = (adapter, out, completion) else { return status(NtStatus::INVALID_PARAMETER) };
    let connector = adapter.manager().connector();
    *out = ConnectorObject::create(adapter, connector, None).into_public();
    status(NtStatus::SUCCESS)
}

fn pending(submitted: Result<Submitted, Error>) -> NTSTATUS {
    match submitted {
        Ok(Submitted::Pending) => status(NtStatus::PENDING),
        Err(error) => failed(&error),
    }
}

/// Returns what calls the request's completion while the connector, whose request it is, is held.
fn finisher(object: &Arc<Object<ConnectorObject>>, request: Request) -> impl FnOnce(Result<(), Error>) + Send + 'static {
    let object = Arc::clone(object);
    move |outcome| {
        request.call(outcome);
        drop(object);
    }
}

unsafe extern "C" fn connect(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    source: *const SOCKADDR,
    source_bytes: ULONG,
    peer: *const SOCKADDR,
    peer_bytes: ULONG,
    inbound: ULONG,
    outbound: ULONG,
    private_data: *const c_void,
    private_bytes: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer gives live objects, addresses and data.
    let (connector, qp, source, peer, private_data) = unsafe {
        (
            Object::<ConnectorObject>::share(connector),
            Object::<QpObject>::share(qp),
            address::read(source, source_bytes),
            address::read(peer, peer_bytes),
            bytes(private_data, private_bytes),
        )
    };
    let (Some(connector), Some(qp), Some(source), Some(peer), Some(private_data), Some(request)) =
        (connector, qp, source, peer, private_data, Request::new(completion, context))
    else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let limits = ReadLimits { inbound, outbound };
    let done = finisher(&connector, request);
    let submitted = connector.connector().connect(qp.qp(), Source::Own(source), peer, limits, private_data, done);
    if submitted.is_ok() {
        connector.hold(qp, None);
    }
    pending(submitted)
}

unsafe extern "C" fn connect_with_shared_endpoint(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    peer: *const SOCKADDR,
    peer_bytes: ULONG,
    inbound: ULONG,
    outbound: ULONG,
    private_data: *const c_void,
    private_bytes: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer gives live objects, an address and data.
    let (connector, qp, endpoint, peer, private_data) = unsafe {
        (
            Object::<ConnectorObject>::share(connector),
            Object::<QpObject>::share(qp),
            Object::<EndpointObject>::share(endpoint),
            address::read(peer, peer_bytes),
            bytes(private_data, private_bytes),
        )
    };
    let (Some(connector), Some(qp), Some(endpoint), Some(peer), Some(private_data), Some(request)) =
        (connector, qp, endpoint, peer, private_data, Request::new(completion, context))
    else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let limits = ReadLimits { inbound, outbound };
    let done = finisher(&connector, request);
    let source = Source::Shared(endpoint.endpoint());
    let submitted = connector.connector().connect(qp.qp(), source, peer, limits, private_data, done);
    if submitted.is_ok() {
        connector.hold(qp, Some(endpoint));
    }
    pending(submitted)
}

/// Returns the driver's callback for the consumer's.
fn disconnect_event(event: Option<unsafe extern "C" fn(PVOID)>, context: PVOID) -> Option<DisconnectCallback> {
    let (event, context) = (event?, Context::new(context));
    // SAFETY: the consumer gave function and context for this call, which is over before the connector's close is.
    Some(Box::new(move || unsafe { event(context.pointer()) }))
}

/// As [`disconnect_event`], with a reason, which is 0: none is known.
fn disconnect_event_ex(event: Option<unsafe extern "C" fn(PVOID, ULONG)>, context: PVOID) -> Option<DisconnectCallback> {
    let (event, context) = (event?, Context::new(context));
    // SAFETY: as there.
    Some(Box::new(move || unsafe { event(context.pointer(), 0) }))
}

unsafe fn complete(
    connector: *mut NDK_CONNECTOR,
    on_disconnect: Option<DisconnectCallback>,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live connector.
    let (Some(connector), Some(request)) = (unsafe { Object::<ConnectorObject>::share(connector) }, Request::new(completion, context))
    else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    pending(connector.connector().complete_connect(on_disconnect, finisher(&connector, request)))
}

unsafe extern "C" fn complete_connect(
    connector: *mut NDK_CONNECTOR,
    event: NDK_FN_DISCONNECT_EVENT_CALLBACK,
    event_context: PVOID,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer's.
    unsafe { complete(connector, disconnect_event(event, event_context), completion, context) }
}

unsafe extern "C" fn complete_connect_ex(
    connector: *mut NDK_CONNECTOR,
    event: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    event_context: PVOID,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer's.
    unsafe { complete(connector, disconnect_event_ex(event, event_context), completion, context) }
}

/// What `NdkAccept` and `NdkAcceptEx` have in common.
struct Acceptance {
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    limits: ReadLimits,
    private_data: *const c_void,
    private_bytes: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
}

impl Acceptance {
    /// # Safety
    /// The objects live, and the data is valid.
    unsafe fn start(self, on_disconnect: Option<DisconnectCallback>) -> NTSTATUS {
        // SAFETY: the caller's.
        let (connector, qp, private_data) = unsafe {
            (
                Object::<ConnectorObject>::share(self.connector),
                Object::<QpObject>::share(self.qp),
                bytes(self.private_data, self.private_bytes),
            )
        };
        let (Some(connector), Some(qp), Some(private_data), Some(request)) =
            (connector, qp, private_data, Request::new(self.completion, self.context))
        else {
            return status(NtStatus::INVALID_PARAMETER);
        };
        let done = finisher(&connector, request);
        let submitted = connector.connector().accept(qp.qp(), self.limits, private_data, on_disconnect, done);
        if submitted.is_ok() {
            connector.hold(qp, None);
        }
        pending(submitted)
    }
}

unsafe extern "C" fn accept(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: ULONG,
    outbound: ULONG,
    private_data: *const c_void,
    private_bytes: ULONG,
    event: NDK_FN_DISCONNECT_EVENT_CALLBACK,
    event_context: PVOID,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    let limits = ReadLimits { inbound, outbound };
    let acceptance = Acceptance { connector, qp, limits, private_data, private_bytes, completion, context };
    // SAFETY: the consumer's.
    unsafe { acceptance.start(disconnect_event(event, event_context)) }
}

unsafe extern "C" fn accept_ex(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: ULONG,
    outbound: ULONG,
    private_data: *const c_void,
    private_bytes: ULONG,
    event: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    event_context: PVOID,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    let limits = ReadLimits { inbound, outbound };
    let acceptance = Acceptance { connector, qp, limits, private_data, private_bytes, completion, context };
    // SAFETY: the consumer's.
    unsafe { acceptance.start(disconnect_event_ex(event, event_context)) }
}

unsafe extern "C" fn reject(connector: *mut NDK_CONNECTOR, private_data: *const c_void, private_bytes: ULONG) -> NTSTATUS {
    // SAFETY: the consumer gives a live connector and data.
    let (connector, private_data) = unsafe { (Object::<ConnectorObject>::borrow(connector), bytes(private_data, private_bytes)) };
    let (Some(connector), Some(private_data)) = (connector, private_data) else { return status(NtStatus::INVALID_PARAMETER) };
    match connector.connector().reject(private_data) {
        Ok(()) => status(NtStatus::SUCCESS),
        Err(error) => failed(&error),
    }
}

unsafe extern "C" fn connection_data(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut ULONG,
    outbound: *mut ULONG,
    private_data: PVOID,
    private_bytes: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live connector and places for what it wants to know.
    let (connector, inbound, outbound, private_bytes) =
        unsafe { (Object::<ConnectorObject>::borrow(connector), inbound.as_mut(), outbound.as_mut(), private_bytes.as_mut()) };
    let (Some(connector), Some(private_bytes)) = (connector, private_bytes) else { return status(NtStatus::INVALID_PARAMETER) };
    let data = connector.connector().data();
    if let Some(inbound) = inbound {
        *inbound = data.limits.inbound;
    }
    if let Some(outbound) = outbound {
        *outbound = data.limits.outbound;
    }
    // The size of a buffer that holds it, whatever was given.
    let given = std::mem::replace(private_bytes, data.private_data.len() as ULONG) as usize;
    if private_data.is_null() {
        return status(if given == 0 { NtStatus::SUCCESS } else { NtStatus::INVALID_PARAMETER });
    }
    let copied = given.min(data.private_data.len());
    // SAFETY: the buffer has `given` bytes, by the consumer's word.
    unsafe { std::ptr::copy_nonoverlapping(data.private_data.as_ptr(), private_data.cast(), copied) };
    status(if copied < data.private_data.len() { NtStatus::BUFFER_TOO_SMALL } else { NtStatus::SUCCESS })
}

unsafe extern "C" fn local_address(connector: *mut NDK_CONNECTOR, to: *mut SOCKADDR, len: *mut ULONG) -> NTSTATUS {
    // SAFETY: the consumer gives a live connector and a place for the address.
    unsafe {
        let Some(connector) = Object::<ConnectorObject>::borrow(connector) else { return status(NtStatus::INVALID_PARAMETER) };
        address::write(connector.connector().local_address(), to, len)
    }
}

unsafe extern "C" fn peer_address(connector: *mut NDK_CONNECTOR, to: *mut SOCKADDR, len: *mut ULONG) -> NTSTATUS {
    // SAFETY: the consumer gives a live connector and a place for the address.
    unsafe {
        let Some(connector) = Object::<ConnectorObject>::borrow(connector) else { return status(NtStatus::INVALID_PARAMETER) };
        address::write(connector.connector().peer_address(), to, len)
    }
}

unsafe extern "C" fn disconnect(connector: *mut NDK_CONNECTOR, completion: NDK_FN_REQUEST_COMPLETION, context: PVOID) -> NTSTATUS {
    // SAFETY: the consumer gives a live connector.
    let (Some(connector), Some(request)) = (unsafe { Object::<ConnectorObject>::share(connector) }, Request::new(completion, context))
    else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    pending(connector.connector().disconnect(finisher(&connector, request)))
}
