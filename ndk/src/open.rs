//! Devices and adapters: what NDIS and its registration functions do on Windows. Names that begin with `Verbena` are this project's.
//!
//! A device is a card with its addresses; an adapter is a device opened for NDK. On Windows the miniport is the device and NDIS calls
//! its open and close handlers, which have these signatures.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tracing::Level;
use verbena_host::cm::{ConnectionManager, Exchange};
use verbena_host::ndk::NtStatus;
use verbena_host::{Adapter, AdapterConfig, Device};

use crate::abi::*;
use crate::adapter::AdapterObject;
use crate::object::{failed, status, Object};

/// Highest versions of the interface that this provider has, one of each major number. It has all functions in any case.
const VERSIONS: [NDK_VERSION; 2] = [NDK_VERSION { Major: 1, Minor: 2 }, NDK_VERSION { Major: 2, Minor: 1 }];

/// Waits after which a close that waits for objects says so, and says it again after twice as many.
const WAITS_BEFORE_WARNING: u32 = 256;

/// A card with its addresses, to be opened.
pub struct CardHandle {
    device: Arc<dyn Device>,
    config: AdapterConfig,
    exchange: Arc<Exchange>,
    /// There is an adapter: a card has one event queue, so one driver.
    is_open: AtomicBool,
}

impl CardHandle {
    /// Returns the handle of a card. Adapters whose cards share an exchange can connect.
    pub fn new(device: Arc<dyn Device>, config: AdapterConfig, exchange: Arc<Exchange>) -> Box<Self> {
        Box::new(Self { device, config, exchange, is_open: AtomicBool::new(false) })
    }

    /// Returns the number by which C names the handle. [`VerbenaCloseDevice`] takes it back.
    pub fn into_raw(self: Box<Self>) -> NDIS_HANDLE {
        Box::into_raw(self).cast()
    }
}

/// Returns the exchange of this process.
pub fn process_exchange() -> Arc<Exchange> {
    static EXCHANGE: OnceLock<Arc<Exchange>> = OnceLock::new();
    Arc::clone(EXCHANGE.get_or_init(Exchange::new))
}

/// Opens an adapter (`OPEN_NDK_ADAPTER_HANDLER`). May block.
///
/// Gives `NDIS_STATUS_BAD_VERSION` for a major number that there is none of, or a minor number above the highest,
/// `NDIS_STATUS_RESOURCES` for a device that is open, since a card has one driver at a time, and the driver's status if the card can't be opened.
///
/// # Safety
/// `device` is a handle of a device, `parameters` and `adapter` are valid.
#[no_mangle]
pub unsafe extern "C" fn VerbenaOpenNdkAdapter(
    device: NDIS_HANDLE,
    parameters: *const NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    adapter: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS {
    // SAFETY: the caller vouches for the pointers.
    let (device, parameters, adapter) = unsafe { (device.cast::<CardHandle>().as_ref(), parameters.as_ref(), adapter.as_mut()) };
    let (Some(device), Some(parameters), Some(adapter)) = (device, parameters, adapter) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let wanted = parameters.Version;
    let offered = VERSIONS.into_iter().find(|version| version.Major == wanted.Major && wanted.Minor <= version.Minor);
    let Some(version) = offered else { return status(NtStatus::BAD_VERSION) };
    if device.is_open.swap(true, Ordering::AcqRel) {
        tracing::error!("opening an adapter: its device is open");
        return status(NtStatus::INSUFFICIENT_RESOURCES);
    }
    match Adapter::open(Arc::clone(&device.device), device.config.clone()) {
        Ok(host) => {
            *adapter = AdapterObject::new(ConnectionManager::new(&host, &device.exchange), version).into_public();
            status(NtStatus::SUCCESS)
        }
        Err(error) => {
            tracing::error!(%error, "opening an adapter");
            device.is_open.store(false, Ordering::Release);
            failed(&error)
        }
    }
}

/// Closes an adapter (`CLOSE_NDK_ADAPTER_HANDLER`). Blocks until everything that was created from it is closed, and every callback
/// has returned; it runs the callbacks meanwhile. Where it waits for long, it warns in the log that objects are left. Not for use inside a callback.
///
/// # Safety
/// `adapter` came from [`VerbenaOpenNdkAdapter`] with this `device` and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn VerbenaCloseNdkAdapter(device: NDIS_HANDLE, adapter: *mut NDK_ADAPTER) {
    if adapter.is_null() {
        return;
    }
    // SAFETY: the pointer came from `into_public`, and the caller gives its count up.
    let object = unsafe { Arc::from_raw(adapter.cast::<Object<AdapterObject>>().cast_const()) };
    let host = Arc::clone(object.host());
    let mut object = Some(object);
    let mut waits = 0u32;
    loop {
        host.process_events();
        // Alone: nobody else holds the object, so nothing that was created from it is left.
        match object.take().map(Arc::try_unwrap) {
            Some(Err(shared)) => {
                waits = waits.saturating_add(1);
                if waits >= WAITS_BEFORE_WARNING && waits.is_power_of_two() {
                    let left = Arc::strong_count(&shared) - 1;
                    tracing::warn!(left, objects = ?host.objects(), waits, "closing an adapter waits for objects that are not closed");
                }
                object = Some(shared);
            }
            Some(Ok(last)) => drop(last),
            None => {}
        }
        if object.is_none() {
            break;
        }
        host.poll_command();
        host.wait();
    }
    // What commands still have under way ends here; there is no way to say that it does not.
    if let Err(error) = host.close_blocking() {
        tracing::error!(%error, "closing an adapter");
    }
    // SAFETY: the caller vouches for the handle.
    if let Some(device) = unsafe { device.cast::<CardHandle>().as_ref() } {
        device.is_open.store(false, Ordering::Release);
    }
}

/// Runs the callbacks that are due, and returns how many events there were. To be called in a loop, by any thread; callbacks of one
/// adapter never overlap.
///
/// # Safety
/// `adapter` is an open adapter.
#[no_mangle]
pub unsafe extern "C" fn VerbenaProcessEvents(adapter: *mut NDK_ADAPTER) -> ULONG {
    // SAFETY: the caller vouches for the pointer.
    unsafe { Object::<AdapterObject>::borrow(adapter) }.map_or(0, |adapter| adapter.host().process_events() as ULONG)
}

/// Waits until something may have happened: an interrupt, or a bounded time. For programs that have nothing else to do; with simulated cards this is
/// what lets their clocks run.
///
/// # Safety
/// `adapter` is an open adapter.
#[no_mangle]
pub unsafe extern "C" fn VerbenaWait(adapter: *mut NDK_ADAPTER) {
    // SAFETY: the caller vouches for the pointer.
    if let Some(adapter) = unsafe { Object::<AdapterObject>::borrow(adapter) } {
        adapter.host().poll_command();
        adapter.host().wait();
    }
}

/// Tells what went over the wire and what became of connections, as a miniport answers `OID_NDK_STATISTICS`. No counter is missing.
///
/// Gives `STATUS_INVALID_PARAMETER` for a null pointer, `STATUS_DEVICE_REMOVED` for a card that is gone, and `NDIS_STATUS_BAD_VERSION` for one whose interface is
/// older than 1.3.
///
/// # Safety
/// `adapter` is an open adapter, `counters` is valid.
#[no_mangle]
pub unsafe extern "C" fn VerbenaQueryStatistics(adapter: *mut NDK_ADAPTER, counters: *mut NDIS_NDK_PERFORMANCE_COUNTERS) -> NTSTATUS {
    // SAFETY: the caller vouches for the pointers.
    let (adapter, counters) = unsafe { (Object::<AdapterObject>::borrow(adapter), counters.as_mut()) };
    let (Some(adapter), Some(counters)) = (adapter, counters) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let (host, connections) = (adapter.host(), adapter.manager().counts());
    let traffic = match host.read_traffic() {
        Ok(traffic) => traffic,
        Err(error) => {
            tracing::error!(%error, "reading the traffic of an adapter");
            return failed(&error);
        }
    };
    *counters = NDIS_NDK_PERFORMANCE_COUNTERS {
        Connect: connections.connected,
        Accept: connections.accepted,
        ConnectFailure: connections.failed,
        ConnectionError: connections.broken,
        ActiveConnection: connections.active,
        CQError: host.anomalies().dead_cqs(),
        RDMAInOctets: traffic.in_octets,
        RDMAOutOctets: traffic.out_octets,
        RDMAInFrames: traffic.in_frames,
        RDMAOutFrames: traffic.out_frames,
        ..NDIS_NDK_PERFORMANCE_COUNTERS::default()
    };
    status(NtStatus::SUCCESS)
}

/// Writes to standard error from now on what the library has to say: errors with level 1, warnings too with 2, and so on up to everything with 5.
/// Without it nothing is said. The first call counts, and none in a program that has a subscriber of `tracing` by then.
///
/// Gives `STATUS_INVALID_PARAMETER` for any other level, and `STATUS_INVALID_DEVICE_REQUEST` for a call that does not count.
#[no_mangle]
pub extern "C" fn VerbenaLogToStderr(level: ULONG) -> NTSTATUS {
    const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
    let Some(level) = (level as usize).checked_sub(1).and_then(|index| LEVELS.get(index)) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let subscriber = tracing_subscriber::fmt().with_max_level(*level).with_writer(std::io::stderr).with_ansi(false).without_time().finish();
    match tracing::subscriber::set_global_default(subscriber) {
        Ok(()) => status(NtStatus::SUCCESS),
        Err(_) => status(NtStatus::INVALID_DEVICE_REQUEST),
    }
}

/// Returns the driver's adapter behind one of the interface, for programs in Rust that want what NDK has no function for: counters, stages,
/// anomalies, how many objects there are. Nothing for null.
///
/// # Safety
/// `adapter` is an open adapter, and stays open as long as what is returned is used.
pub unsafe fn host_adapter<'a>(adapter: *mut NDK_ADAPTER) -> Option<&'a Adapter> {
    // SAFETY: the caller vouches for the pointer.
    unsafe { Object::<AdapterObject>::borrow(adapter) }.map(|adapter| &**adapter.host())
}

/// Gives a device back. Its adapter is closed by then.
///
/// # Safety
/// `device` is a handle of a device and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn VerbenaCloseDevice(device: NDIS_HANDLE) {
    if !device.is_null() {
        // SAFETY: the handle came from `into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(device.cast::<CardHandle>()) });
    }
}

/// Makes two simulated cards, joined by a link, with the addresses 192.0.2.1 and 192.0.2.2. Everything that happens by chance comes from `seed`.
///
/// # Safety
/// `devices` has room for two handles, each of which [`VerbenaCloseDevice`] takes back.
#[cfg(feature = "sim")]
#[no_mangle]
pub unsafe extern "C" fn VerbenaOpenSimulation(seed: ULONG64, devices: *mut NDIS_HANDLE) -> NDIS_STATUS {
    use std::net::Ipv4Addr;
    use verbena_sim::{World, WorldConfig};

    if devices.is_null() {
        return status(NtStatus::INVALID_PARAMETER);
    }
    let world = match World::new(&WorldConfig { seed, ..WorldConfig::default() }) {
        Ok(world) => world,
        Err(error) => {
            tracing::error!(%error, "making the simulation");
            return status(NtStatus::INSUFFICIENT_RESOURCES);
        }
    };
    let exchange = Exchange::new();
    for number in 0..2u8 {
        let config = AdapterConfig::new([2, 0, 0, 0, 0, number + 1], Some(Ipv4Addr::new(192, 0, 2, number + 1)), None);
        let config = AdapterConfig { psn_seed: Some(seed), ..config };
        let handle = CardHandle::new(world.device(number.into()), config, Arc::clone(&exchange)).into_raw();
        // SAFETY: the caller gives room for two.
        unsafe { devices.add(number.into()).write(handle) };
    }
    status(NtStatus::SUCCESS)
}

/// Opens a card that is bound to `vfio-pci`.
///
/// `sysfs` is the function's folder, for instance `/sys/bus/pci/devices/0000:41:00.0`; `mac` has six bytes and `ipv4` four, first byte first.
///
/// # Safety
/// `sysfs` is a string that ends with a zero, the other pointers are valid.
#[cfg(feature = "vfio")]
#[no_mangle]
pub unsafe extern "C" fn VerbenaOpenVfio(
    sysfs: *const std::ffi::c_char,
    mac: *const u8,
    ipv4: *const u8,
    device: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    use std::ffi::CStr;

    if sysfs.is_null() || mac.is_null() || ipv4.is_null() || device.is_null() {
        return status(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the caller vouches for the pointers.
    let (sysfs, mac, ipv4) = unsafe { (CStr::from_ptr(sysfs), mac.cast::<[u8; 6]>().read(), ipv4.cast::<[u8; 4]>().read()) };
    let Ok(sysfs) = sysfs.to_str() else { return status(NtStatus::INVALID_PARAMETER) };
    match verbena_host::pci::PciCard::open(sysfs) {
        Ok(card) => {
            let handle = CardHandle::new(card, AdapterConfig::new(mac, Some(ipv4.into()), None), process_exchange()).into_raw();
            // SAFETY: as above.
            unsafe { device.write(handle) };
            status(NtStatus::SUCCESS)
        }
        Err(error) => {
            tracing::error!(%error, "opening a card");
            failed(&error)
        }
    }
}

/// A handle is a pointer of C's.
const _: () = assert!(size_of::<NDIS_HANDLE>() == size_of::<*mut c_void>());
