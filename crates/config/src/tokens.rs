//! Reads what is on PKCS#11 tokens: the section `gateway.pkcs11`, the secrets `token` and the certificates `cert`. It loads
//! no module.

use std::path::PathBuf;
use std::sync::Arc;

use esplanade_crypto::secret::Secret;
use esplanade_tokens::{TokenKey, TokenPlace};

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::schema;
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, absolute, given, hex, read, report};

/// Bytes of a CKA_ID. Tokens have fewer.
const HANDLE_BYTES_MAX: usize = 128;
const MODULES_MAX: usize = 16;

/// A PKCS#11 module, which is a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pkcs11Module {
    pub name: String,
    pub path: PathBuf,
}

/// Reads `gateway.pkcs11`.
pub(crate) fn modules(node: &SectionNode, d: &mut Diagnostics) -> Vec<Pkcs11Module> {
    schema::check(node, &schema::PKCS11, false, d);
    let mut modules = Vec::new();
    let Some(list) = node.section("modules") else {
        return modules;
    };
    schema::check(list, &schema::PKCS11_MODULES, false, d);
    for section in list.sections() {
        schema::check(section, &schema::PKCS11_MODULE, false, d);
        let (name, at) = (section.name.value.clone(), section.name.at);
        let mut refuse = |what: String, help: &str| {
            d.push(Diagnostic::error(what).at(at).help(help));
        };
        if modules.len() == MODULES_MAX {
            let what = format!("there are more than {MODULES_MAX} modules");
            refuse(what, "remove those that no secret names");
            break;
        }
        if given(section, "path").is_none() {
            let what = format!("the module {} has no `path`", quoted(&name));
            refuse(what, "add `path = …`, the file of the library");
            continue;
        }
        if let Some(path) = read(section, "path", d, absolute) {
            modules.push(Pkcs11Module { name, path });
        }
    }
    modules
}

/// Reads a secret `token<suffix>`.
pub(crate) fn token(
    section: &SectionNode,
    modules: &[Pkcs11Module],
    d: &mut Diagnostics,
) -> Option<TokenKey> {
    schema::check(section, &schema::SECRET_TOKEN, true, d);
    let place = place(section, modules, d)?;
    let pin = given(section, "pin");
    let pin = pin.map(|entry| Arc::new(Secret::from(entry.value.value.obey().as_bytes())));
    Some(TokenKey { place, pin })
}

/// Reads `handle`, `slot` and `module`.
pub(crate) fn place(
    section: &SectionNode,
    modules: &[Pkcs11Module],
    d: &mut Diagnostics,
) -> Option<TokenPlace> {
    let name = section.name.value.as_str();
    if given(section, "handle").is_none() {
        let what = format!("{} has no `handle`", quoted(name));
        let help =
            "add `handle = …`, the CKA_ID in hex; `pkcs11-tool --list-objects` shows it as ID";
        let error = Diagnostic::error(what).at(section.name.at).help(help);
        d.push(error.hide_source());
        return None;
    }
    let handle = read(section, "handle", d, handle);
    let slot = read(section, "slot", d, slot);
    let module = module(section, modules, d);
    if given(section, "slot").is_some() && slot.is_none() {
        return None;
    }
    Some(TokenPlace {
        module: module?.path.clone(),
        slot,
        handle: handle?,
    })
}

fn module<'a>(
    section: &SectionNode,
    modules: &'a [Pkcs11Module],
    d: &mut Diagnostics,
) -> Option<&'a Pkcs11Module> {
    let (bad, at) = match (given(section, "module"), modules) {
        (None, [only]) => return Some(only),
        (None, []) => (
            ValueError::new(
                "no PKCS#11 module is configured",
                "add `gateway { pkcs11 { modules { NAME { path = … } } } }`",
            ),
            section.name.at,
        ),
        (None, _) => (
            ValueError::new("there are several modules", "name one of them"),
            section.name.at,
        ),
        (Some(entry), _) => {
            let name = entry.value.value.obey();
            if let Some(found) = modules.iter().find(|one| one.name == name) {
                return Some(found);
            }
            let what = format!("there is no PKCS#11 module {}", quoted(name));
            let help = "name a section of `gateway.pkcs11.modules`";
            (ValueError::new(what, help), entry.value.at)
        }
    };
    report("module", bad, at, d);
    None
}

/// A slot, in decimal digits, or in hex digits after `0x` as tools show it.
fn slot(text: &str) -> ValueResult<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| {
        let what = format!("{} is not the number of a slot", quoted(text));
        ValueError::new(what, "`pkcs11-tool --list-slots` shows the numbers")
    })
}

fn handle(text: &str) -> ValueResult<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).replace(':', "");
    let bytes = hex(&digits).filter(|bytes| (1..=HANDLE_BYTES_MAX).contains(&bytes.len()));
    bytes.map(|bytes| bytes.to_vec()).ok_or_else(|| {
        let what = format!("{} is not a CKA_ID", quoted(text));
        let help = "write pairs of hex digits; `pkcs11-tool --list-objects` shows them as ID";
        ValueError::new(what, help)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_and_slots() {
        assert_eq!(handle("02:a7").ok(), Some(vec![2, 0xa7]));
        assert_eq!(handle("0x02A7").ok(), Some(vec![2, 0xa7]));
        for bad in [
            "",
            "0x",
            "2",
            "02a",
            "moon",
            &"00".repeat(HANDLE_BYTES_MAX + 1),
        ] {
            assert!(handle(bad).is_err(), "{bad}");
        }
        assert_eq!(slot("0x1a").ok(), Some(26));
        assert_eq!(slot("26").ok(), Some(26));
        assert!(slot("-1").is_err() && slot("first").is_err());
    }
}
