//! Finding cards among the PCI functions that the system shows.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use verbena_abi::pci::{DEVICE, VENDOR};

use crate::error::Error;
use crate::pci::function::Identity;

/// The folder in which Linux shows PCI functions.
pub const SYSFS: &str = "/sys/bus/pci/devices";
/// The driver that hands a function to a process.
const VFIO_DRIVER: &str = "vfio-pci";

/// A card as the system shows it, which may be in use or bound to another driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCard {
    /// Address on PCI, for instance `0000:41:00.0`.
    pub address: String,
    /// Its folder, for [`super::PciCard::open`].
    pub folder: PathBuf,
    /// The driver that it is bound to.
    pub driver: Option<String>,
    /// Whether it is in an IOMMU group.
    pub has_iommu: bool,
}

impl FoundCard {
    /// Looks at the function with the given folder. Fails with [`Error::OtherFunction`] or [`Error::Os`].
    pub fn look_at(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref();
        let found = read_identity(folder).map_err(reading)?;
        check(found)?;
        Self::of(folder).map_err(reading)
    }

    /// Looks at a function that has a card's ids.
    fn of(folder: &Path) -> io::Result<Self> {
        Ok(Self {
            // The folder may have been named by a link, which need not be called like the function.
            address: last_name(&folder.canonicalize().map_err(|error| at(folder, &error))?),
            folder: folder.to_path_buf(),
            driver: link(&folder.join("driver"))?,
            has_iommu: link(&folder.join("iommu_group"))?.is_some(),
        })
    }

    /// Tells whether the card is bound to `vfio-pci`.
    pub fn is_bound(&self) -> bool {
        self.driver.as_deref() == Some(VFIO_DRIVER)
    }

    /// Fails with [`Error::NoIommu`] or [`Error::NotBound`] if the card cannot be opened as the system is.
    pub fn check(&self) -> Result<(), Error> {
        // First: without an IOMMU `vfio-pci` does not even take the card.
        if !self.has_iommu {
            return Err(Error::NoIommu { address: self.address.clone() });
        }
        if !self.is_bound() {
            return Err(Error::NotBound { address: self.address.clone(), driver: self.driver.clone() });
        }
        Ok(())
    }
}

/// Returns the cards among the functions in `root`, [`SYSFS`] as a rule, in the order of their addresses.
///
/// Fails with [`Error::NoCard`] if there is none, or with [`Error::Os`]. A function that vanishes meanwhile is left out.
pub fn find(root: impl AsRef<Path>) -> Result<Vec<FoundCard>, Error> {
    let root = root.as_ref();
    let mut cards = Vec::new();
    for entry in fs::read_dir(root).map_err(|error| reading(at(root, &error)))? {
        let folder = entry.map_err(|error| reading(at(root, &error)))?.path();
        match read_identity(&folder).and_then(|found| if is_ours(found) { FoundCard::of(&folder).map(Some) } else { Ok(None) }) {
            Ok(card) => cards.extend(card),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(reading(error)),
        }
    }
    // Addresses are hexadecimal with leading zeroes, and a domain of more than four digits makes them longer.
    cards.sort_by(|a, b| (a.address.len(), &a.address).cmp(&(b.address.len(), &b.address)));
    if cards.is_empty() {
        return Err(Error::NoCard { vendor: VENDOR, device: DEVICE, folder: root.to_path_buf() });
    }
    Ok(cards)
}

/// Returns the first card in `root` that is ready to be opened. If there is none, says what the first one lacks.
///
/// Fails as [`find`] and [`FoundCard::check`] do.
pub fn find_ready(root: impl AsRef<Path>) -> Result<FoundCard, Error> {
    let cards = find(root)?;
    let mut first = None;
    for card in &cards {
        match card.check() {
            Ok(()) => return Ok(card.clone()),
            Err(error) => first = first.or(Some(error)),
        }
    }
    // `find` has found one, so it lacked something.
    Err(first.unwrap_or_else(|| reading(io::ErrorKind::NotFound.into())))
}

/// Fails with [`Error::OtherFunction`] if the ids are not a card's.
pub(super) fn check(found: Identity) -> Result<(), Error> {
    if !is_ours(found) {
        return Err(Error::OtherFunction { found_vendor: found.vendor, found_device: found.device, vendor: VENDOR, device: DEVICE });
    }
    Ok(())
}

fn is_ours(found: Identity) -> bool {
    found == Identity { vendor: VENDOR, device: DEVICE }
}

fn reading(source: io::Error) -> Error {
    Error::Os { what: "looking at PCI functions", source }
}

/// Says where an error occurred.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn read_identity(folder: &Path) -> io::Result<Identity> {
    Ok(Identity { vendor: read_number(&folder.join("vendor"))?, device: read_number(&folder.join("device"))? })
}

/// Reads a file of one number, `0x10ee` and a line end.
fn read_number(path: &Path) -> io::Result<u16> {
    let text = fs::read_to_string(path).map_err(|error| at(path, &error))?;
    let digits = text.trim_end().strip_prefix("0x");
    digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()).ok_or_else(|| {
        let message = format!("{} holds no number of 16 bits: {text:?}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// Returns the name of what a link leads to, or nothing if there is no such link.
fn link(path: &Path) -> io::Result<Option<String>> {
    match fs::read_link(path) {
        Ok(target) => Ok(Some(last_name(&target))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, &error)),
    }
}

fn last_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    /// A folder as `/sys/bus/pci/devices` is: a link for each function.
    struct Sysfs {
        root: TempDir,
    }

    impl Sysfs {
        fn new() -> Self {
            let root = TempDir::new().unwrap();
            fs::create_dir(root.path().join("devices")).unwrap();
            Self { root }
        }

        fn devices(&self) -> PathBuf {
            self.root.path().join("devices")
        }

        fn add(&self, address: &str, vendor: &str, device: &str, driver: Option<&str>, group: Option<u32>) -> PathBuf {
            let real = self.root.path().join("pci0000:40").join(address);
            fs::create_dir_all(&real).unwrap();
            fs::write(real.join("vendor"), vendor).unwrap();
            fs::write(real.join("device"), device).unwrap();
            if let Some(driver) = driver {
                symlink(format!("../../../bus/pci/drivers/{driver}"), real.join("driver")).unwrap();
            }
            if let Some(group) = group {
                symlink(format!("../../kernel/iommu_groups/{group}"), real.join("iommu_group")).unwrap();
            }
            let link = self.devices().join(address);
            symlink(&real, &link).unwrap();
            link
        }

        fn add_card(&self, address: &str, driver: Option<&str>) -> PathBuf {
            self.add(address, "0x10ee\n", "0x5652\n", driver, Some(7))
        }
    }

    #[test]
    fn cards_are_found_among_others_in_the_order_of_their_addresses() {
        let sysfs = Sysfs::new();
        sysfs.add("0000:00:00.0", "0x8086\n", "0x29c0\n", None, Some(0));
        // Either id alone is not enough.
        sysfs.add("0000:01:00.0", "0x10ee\n", "0x903f\n", None, Some(1));
        sysfs.add("0000:02:00.0", "0x1af4\n", "0x5652\n", None, Some(2));
        sysfs.add_card("10000:01:00.0", Some("vfio-pci"));
        sysfs.add_card("0000:c1:00.0", None);
        sysfs.add_card("0000:41:00.0", Some("vfio-pci"));
        sysfs.add_card("0000:41:00.1", Some("xdma"));
        let cards = find(sysfs.devices()).unwrap();
        let seen: Vec<_> = cards.iter().map(|card| (card.address.as_str(), card.driver.as_deref(), card.is_bound())).collect();
        assert_eq!(
            seen,
            [
                ("0000:41:00.0", Some("vfio-pci"), true),
                ("0000:41:00.1", Some("xdma"), false),
                ("0000:c1:00.0", None, false),
                ("10000:01:00.0", Some("vfio-pci"), true),
            ]
        );
        assert!(cards.iter().all(|card| card.has_iommu && card.folder == sysfs.devices().join(&card.address)));
    }

    #[test]
    fn the_first_card_that_is_bound_is_taken() {
        let sysfs = Sysfs::new();
        sysfs.add_card("0000:41:00.0", Some("xdma"));
        sysfs.add_card("0000:81:00.0", Some("vfio-pci"));
        sysfs.add_card("0000:c1:00.0", Some("vfio-pci"));
        assert_eq!(find_ready(sysfs.devices()).unwrap().address, "0000:81:00.0");
    }

    #[test]
    fn no_card_is_told_with_ids_and_folder() {
        let sysfs = Sysfs::new();
        sysfs.add("0000:01:00.0", "0x10ee\n", "0x903f\n", None, Some(1));
        let error = find_ready(sysfs.devices()).unwrap_err();
        assert_eq!(error.to_string(), format!("no PCI function 10ee:5652 in {}", sysfs.devices().display()));
        let nowhere = sysfs.devices().join("nowhere");
        let error = find(&nowhere).unwrap_err().to_string();
        assert!(error.contains(&nowhere.display().to_string()), "{error}");
    }

    #[test]
    fn a_card_of_another_driver_is_told_with_the_way_out() {
        let sysfs = Sysfs::new();
        sysfs.add_card("0000:41:00.0", Some("xdma"));
        let error = find_ready(sysfs.devices()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the card 0000:41:00.0 is bound to xdma, and vfio-pci is needed: write vfio-pci to its driver_override, \
             0000:41:00.0 to its driver/unbind if it is bound, and 0000:41:00.0 to /sys/bus/pci/drivers_probe"
        );
        let unbound = FoundCard::look_at(sysfs.add_card("0000:42:00.0", None)).unwrap();
        assert!(unbound.check().unwrap_err().to_string().starts_with("the card 0000:42:00.0 is bound to no driver, and vfio-pci"));
    }

    #[test]
    fn a_system_without_iommu_is_told() {
        let sysfs = Sysfs::new();
        let folder = sysfs.add("0000:41:00.0", "0x10ee\n", "0x5652\n", None, None);
        let error = FoundCard::look_at(folder).unwrap().check().unwrap_err();
        assert_eq!(error.to_string(), "the card 0000:41:00.0 is in no IOMMU group: the system's IOMMU is off");
    }

    #[test]
    fn another_function_is_told_with_both_ids() {
        let sysfs = Sysfs::new();
        let folder = sysfs.add("0000:01:00.0", "0x10ee\n", "0x903f\n", Some("vfio-pci"), Some(1));
        let error = FoundCard::look_at(folder).unwrap_err();
        assert_eq!(error.to_string(), "PCI function 10ee:903f is no Verbena card, which is 10ee:5652");
    }

    #[test]
    fn a_function_that_vanishes_is_left_out_and_nonsense_is_told() {
        let sysfs = Sysfs::new();
        sysfs.add_card("0000:41:00.0", Some("vfio-pci"));
        symlink(sysfs.root.path().join("gone"), sysfs.devices().join("0000:42:00.0")).unwrap();
        assert_eq!(find(sysfs.devices()).unwrap().len(), 1);
        sysfs.add("0000:43:00.0", "0x10ee\n", "5652\n", None, Some(1));
        let error = find(sysfs.devices()).unwrap_err().to_string();
        assert!(error.ends_with("0000:43:00.0/device holds no number of 16 bits: \"5652\\n\""), "{error}");
    }
}
