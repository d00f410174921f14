//! The source of the kernels: C that is OpenCL C 1.2, CUDA C and plain C (`kernels/shim.h`).

/// The files in the order in which the compiler has to see them, as one text.
pub const SOURCE: &str = concat!(
    include_str!("../kernels/abi.h"),
    include_str!("../kernels/shim.h"),
    include_str!("../kernels/aes.h"),
    include_str!("../kernels/aes_tables.h"),
    include_str!("../kernels/ghash.h"),
    include_str!("../kernels/chacha.h"),
    include_str!("../kernels/poly1305.h"),
    include_str!("../kernels/des_networks.h"),
    include_str!("../kernels/des.h"),
    include_str!("../kernels/des_tables.h"),
    include_str!("../kernels/hash.h"),
    include_str!("../kernels/packet.h"),
    include_str!("../kernels/keys.h"),
    include_str!("../kernels/cipher.h"),
    include_str!("../kernels/cipher_tables.h"),
    include_str!("../kernels/mac.h"),
    include_str!("../kernels/esp.c"),
);

/// The compiler's option for kernels that look AES and 3DES up in tables. Without it they are constant-time.
pub const TABLES: &str = "-DTABLES";

/// The same as NVIDIA's PTX of compute capability 7.5, which a driver translates for its GPU. `tools/gpu-kernels.py`
/// makes the file. A zero ends the text, as the driver takes it.
const PTX: &str = concat!(include_str!("../kernels/esp.ptx"), "\0");
/// The same with [`TABLES`].
const PTX_TABLES: &str = concat!(include_str!("../kernels/esp_tables.ptx"), "\0");

/// Returns the kernels for CUDA's driver, with tables or constant-time.
pub const fn ptx(tables: bool) -> &'static str {
    if tables { PTX_TABLES } else { PTX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{self, StageKind};

    /// Returns the value of a `#define`.
    fn defined(name: &str) -> usize {
        let start = format!("#define {name} ");
        let mut lines = SOURCE.lines();
        let value = lines.find_map(|line| line.strip_prefix(&start));
        let value = value.and_then(|rest| rest.split(' ').next());
        value.and_then(|value| value.parse().ok()).expect(name)
    }

    /// FNV-1a of 64 bits.
    fn hash(text: &str) -> u64 {
        let add = |value: u64, byte: u8| (value ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, add)
    }

    /// The compiler is not everywhere, but this sees a source that has changed since.
    #[test]
    fn the_ptx_is_of_these_kernels() {
        let first = format!("// Kernels: {:016x}\n", hash(SOURCE));
        for text in [PTX, PTX_TABLES] {
            assert!(
                text.starts_with(&first),
                "kernels/*.ptx are old: run tools/gpu-kernels.py --write, which needs NVIDIA's compiler (tools/deps.sh)"
            );
        }
    }

    /// Returns the names that follow a text, each up to a parenthesis.
    fn named(text: &'static str, before: &str) -> Vec<&'static str> {
        let parts = text.split(before).skip(1);
        parts.filter_map(|part| part.split('(').next()).collect()
    }

    #[test]
    fn the_ptx_is_for_all_drivers_and_has_all_entries() {
        for text in [PTX, PTX_TABLES] {
            for line in [
                "\n.version 6.3\n",
                "\n.target sm_75\n",
                "\n.address_size 64\n",
            ] {
                assert!(text.contains(line), "{line}");
            }
            let entries = named(text, ".visible .entry ");
            assert_eq!(entries, named(SOURCE, "\nENTRY "));
            assert!(entries.len() >= 5);
            let lanes = format!(".maxntid {}, 1, 1\n", abi::GROUP_LANES);
            assert_eq!(text.matches(&lanes).count(), entries.len());
            assert!(text.ends_with('\0') && text.matches('\0').count() == 1);
        }
    }

    /// Tables are in memory that the work-group shares, and nothing else is.
    #[test]
    fn each_form_has_its_own_ptx() {
        for of_groups in [".shared", "bar.sync"] {
            assert!(!ptx(false).contains(of_groups), "{of_groups}");
            assert!(ptx(true).contains(of_groups), "{of_groups}");
        }
    }

    /// Returns the lines that a compiler sees without the option.
    fn without_tables() -> Vec<&'static str> {
        let mut seen = Vec::new();
        let mut skipped = false;
        for line in SOURCE.lines() {
            match line {
                "#ifdef TABLES" => skipped = true,
                "#else" | "#endif" if skipped => skipped = false,
                line if !skipped => seen.push(line),
                _ => {}
            }
        }
        seen
    }

    #[test]
    fn the_default_kernels_have_no_table() {
        let seen = without_tables();
        assert!(seen.len() > 800 && seen.contains(&"    case KIND_CBC_SEAL: cbc_seal(&l); break;"));
        for word in ["table[", "look_up", "LOCAL_ARRAY u32", "BARRIER;"] {
            assert!(SOURCE.contains(word), "{word}");
            assert!(seen.iter().all(|line| !line.contains(word)), "{word}");
        }
        assert!(!SOURCE.contains("define TABLES"));
    }

    #[test]
    fn the_numbers_are_the_hosts() {
        for (name, value) in [
            ("ESP_LANES", abi::GROUP_LANES),
            ("JOB_WORDS", abi::JOB_WORDS),
            ("GROUP_WORDS", abi::GROUP_WORDS),
            ("RAW_WORDS", abi::RAW_WORDS),
            ("ROW_WORDS", abi::ROW_WORDS),
            ("VERDICT_DONE", abi::DONE as usize),
            ("VERDICT_NOT_AUTHENTIC", abi::NOT_AUTHENTIC as usize),
            ("KIND_COPY", StageKind::Copy as usize),
            ("KIND_CBC_SEAL", StageKind::CbcSeal as usize),
            ("KIND_CBC_OPEN", StageKind::CbcOpen as usize),
            ("KIND_CTR", StageKind::Ctr as usize),
            ("KIND_CHACHA", StageKind::ChaCha as usize),
            ("KIND_TDES_OPEN", StageKind::TripleDesOpen as usize),
            ("KIND_CBC_SEAL_TABLES", StageKind::CbcSealTables as usize),
            ("KIND_CBC_OPEN_TABLES", StageKind::CbcOpenTables as usize),
            ("KIND_CTR_TABLES", StageKind::CtrTables as usize),
            (
                "KIND_TDES_SEAL_TABLES",
                StageKind::TripleDesSealTables as usize,
            ),
            (
                "KIND_TDES_OPEN_TABLES",
                StageKind::TripleDesOpenTables as usize,
            ),
            ("KIND_HMAC_MD5", StageKind::HmacMd5 as usize),
            ("KIND_HMAC_SHA1", StageKind::HmacSha1 as usize),
            ("KIND_HMAC_SHA256", StageKind::HmacSha256 as usize),
            ("KIND_GHASH", StageKind::Ghash as usize),
            ("KIND_GMAC", StageKind::Gmac as usize),
            ("KIND_POLY1305", StageKind::Poly1305 as usize),
            ("KIND_FINISH_GCM", StageKind::FinishGcm as usize),
        ] {
            assert_eq!(defined(name), value, "{name}");
        }
        let lanes = StageKind::Ghash.lanes().unwrap_or_default();
        assert_eq!(lanes * defined("PARTIAL_WORDS"), abi::SCRATCH_WORDS);
    }
}
