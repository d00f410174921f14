//! Libraries in directories: published, opened, updated, and refused.

mod made;

use std::fs;
use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use esplanade_ace::compress::Phase;
use esplanade_ace::frames::Grain;
use esplanade_ace::library::{Library, LibraryError, PackedDomain, Trust, pack, publish};
use made::Made;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("32 bytes")
}

fn trust(seed: u8) -> Trust {
    let public = key(seed).public_key().as_ref().try_into();
    Trust::Key(public.expect("32 bytes"))
}

fn bitstreams() -> [Vec<u8>; 2] {
    let mut variant = Made::new("Part: LFE5U-25F-6CABGA381");
    variant.frames[1000..1400].fill(0x5a);
    let first = variant.bytes();
    variant.frames[1111] = 0x5b;
    variant.blocks = vec![3];
    [first, variant.bytes()]
}

fn domain(name: &str, bitstreams: &[Vec<u8>; 2]) -> PackedDomain {
    let [first, second] = bitstreams;
    let variants = [("seal-128", &first[..]), ("seal-256", &second[..])];
    pack(name, &variants, Grain::Bit, &[], Phase::One).expect("good bitstreams")
}

/// A directory with a library of one domain, signed.
fn published() -> (TempDir, [Vec<u8>; 2]) {
    let folder = tempfile::tempdir().expect("a directory");
    let bitstreams = bitstreams();
    let domains = [domain("aes", &bitstreams)];
    publish(folder.path(), 5, &domains, Some(&key(1))).expect("published");
    (folder, bitstreams)
}

fn refused(folder: &Path, trust: &Trust) -> LibraryError {
    Library::open(folder, trust, 0).expect_err("a wrong library")
}

#[test]
fn what_is_published_is_opened() {
    let (folder, bitstreams) = published();
    let library = Library::open(folder.path(), &trust(1), 5).expect("a good library");
    for (variant, wanted) in ["seal-128", "seal-256"].into_iter().zip(&bitstreams) {
        let merged: Result<Vec<u8>, _> = library.bitstream("aes", variant).unwrap().collect();
        assert!(merged.as_ref() == Ok(wanted), "{variant}");
    }
    assert!(library.bitstream("aes", "seal-192").is_none());
    assert!(library.bitstream("des", "seal-128").is_none());
    let [listed] = &library.manifest().domains[..] else {
        panic!("one domain");
    };
    assert_eq!(
        (listed.part.as_str(), listed.variants.len()),
        ("LFE5U-25F", 2)
    );
    let stored = fs::metadata(folder.path().join(listed.file_name()))
        .unwrap()
        .len();
    assert_eq!(stored, listed.bytes);
}

#[test]
fn an_update_replaces_the_whole_and_goes_forward_only() {
    let (folder, bitstreams) = published();
    let old = Library::open(folder.path(), &trust(1), 0).unwrap();
    let [first, second] = bitstreams;
    let domains = [domain("des", &[second, first])];
    for serial in [0, 5] {
        let error = publish(folder.path(), serial, &domains, Some(&key(1))).unwrap_err();
        assert!(
            matches!(error, LibraryError::Serial { wanted: 6, .. }),
            "{error}"
        );
    }
    // What an interrupted update left.
    fs::write(folder.path().join("0000.ace.new"), "half").unwrap();
    publish(folder.path(), 6, &domains, Some(&key(1))).expect("a newer library");
    let new = Library::open(folder.path(), &trust(1), 6).unwrap();
    assert!(
        new.bitstream("aes", "seal-128").is_none() && new.bitstream("des", "seal-128").is_some()
    );
    assert!(
        old.bitstream("aes", "seal-128").is_some(),
        "a library that is open stays as it was"
    );
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [domains[0].domain().file_name(), "manifest".to_owned()]
    );

    let error = Library::open(folder.path(), &trust(1), 7).unwrap_err();
    assert!(
        matches!(
            error,
            LibraryError::Serial {
                found: 6,
                wanted: 7
            }
        ),
        "{error}"
    );
}

#[test]
fn only_the_trusted_key_counts() {
    let (folder, bitstreams) = published();
    assert!(matches!(
        refused(folder.path(), &trust(2)),
        LibraryError::Signature
    ));
    Library::open(folder.path(), &Trust::Directory, 0).expect("a signature is not asked for");

    let path = folder.path().join("manifest");
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.replace("seal-256", "seal-257");
    fs::write(&path, &changed).unwrap();
    assert!(matches!(
        refused(folder.path(), &trust(1)),
        LibraryError::Signature
    ));
    fs::write(
        &path,
        format!("unsigned\n{}", changed.split_once('\n').unwrap().1),
    )
    .unwrap();
    assert!(matches!(
        refused(folder.path(), &trust(1)),
        LibraryError::Signature
    ));

    let unsigned = tempfile::tempdir().unwrap();
    publish(unsigned.path(), 1, &[domain("aes", &bitstreams)], None).unwrap();
    assert!(matches!(
        refused(unsigned.path(), &trust(1)),
        LibraryError::Signature
    ));
    Library::open(unsigned.path(), &Trust::Directory, 0).expect("nobody asks for a signature");
}

#[test]
fn changed_files_are_refused() {
    let (folder, _) = published();
    let library = Library::open(folder.path(), &trust(1), 0).unwrap();
    let path = folder
        .path()
        .join(library.manifest().domains[0].file_name());
    let good = fs::read(&path).unwrap();

    let mut changed = good.clone();
    changed[good.len() / 2] ^= 1;
    fs::write(&path, &changed).unwrap();
    assert!(matches!(
        refused(folder.path(), &trust(1)),
        LibraryError::DomainHash { .. }
    ));
    fs::write(&path, [&good[..], &[0]].concat()).unwrap();
    assert!(matches!(
        refused(folder.path(), &trust(1)),
        LibraryError::DomainHash { .. }
    ));
    fs::remove_file(&path).unwrap();
    assert!(matches!(
        refused(folder.path(), &trust(1)),
        LibraryError::Io { .. }
    ));
    let long = fs::File::create(&path).unwrap();
    long.set_len((64 << 20) + 1).unwrap();
    assert!(matches!(
        refused(folder.path(), &trust(1)),
        LibraryError::TooLarge { .. }
    ));
}

/// Opens a library whose manifest was changed, as somebody who may write to an unsigned directory could.
fn with_manifest(change: impl Fn(&str) -> String) -> Result<Library, LibraryError> {
    let (folder, _) = published();
    let path = folder.path().join("manifest");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, change(&text)).unwrap();
    Library::open(folder.path(), &Trust::Directory, 0)
}

#[test]
fn wrong_manifests_are_refused() {
    with_manifest(str::to_owned).expect("an unchanged manifest");
    let cases: [(&str, &str); 9] = [
        ("\n", ""),
        ("\"version\": 1", "\"version\": 2"),
        ("\"serial\": 5", "\"serial\": -5"),
        ("\"serial\": 5", "\"serial\": 5, \"more\": 1"),
        ("\"aes\"", "\"../aes\""),
        ("\"seal-256\"", "\"seal-128\""),
        ("LFE5U-25F", "LFE5U-26F"),
        ("\"sha256\": \"", "\"sha256\": \"/"),
        ("\"bytes\": 5", "\"bytes\": 55555"),
    ];
    for (from, to) in cases {
        let error = with_manifest(|text| text.replace(from, to)).unwrap_err();
        assert!(
            matches!(error, LibraryError::Manifest(_)),
            "{from} as {to}: {error}"
        );
    }
    let error = with_manifest(|text| text.replace("LFE5U-25F", "LFE5U-85F")).unwrap_err();
    assert!(matches!(error, LibraryError::VariantHash { .. }), "{error}");
    // The last hash is a bitstream's.
    let error = with_manifest(|text| {
        let (before, after) = text.rsplit_once("\"sha256\": \"").unwrap();
        format!("{before}\"sha256\": \"{}{}", "0".repeat(64), &after[64..])
    });
    assert!(matches!(
        error.unwrap_err(),
        LibraryError::VariantHash { .. }
    ));
    let error = with_manifest(|text| {
        let last = text.rfind("      {").unwrap();
        format!("{}]}}]}}", text[..last].trim_end().trim_end_matches(','))
    });
    assert!(matches!(
        error.unwrap_err(),
        LibraryError::Parts {
            wanted: 4,
            found: 6,
            ..
        }
    ));
    let error = with_manifest(|text| text.to_owned() + &" ".repeat(1 << 20)).unwrap_err();
    assert!(matches!(error, LibraryError::TooLarge { .. }));
}

/// Whatever bytes change in an unsigned library, it is refused or gives the same bitstreams.
#[test]
fn changed_bytes_do_no_harm() {
    let (folder, bitstreams) = published();
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let strategy = (0..names.len(), any::<prop::sample::Index>(), any::<u8>());
    let cases = ProptestConfig::with_cases(96);
    let ran = TestRunner::new(cases).run(&strategy, |(name, at, byte)| {
        let good = fs::read(&names[name]).unwrap();
        let mut changed = good.clone();
        let at = at.index(good.len());
        changed[at] = byte;
        fs::write(&names[name], &changed).unwrap();
        let opened = Library::open(folder.path(), &Trust::Directory, 0);
        fs::write(&names[name], &good).unwrap();
        if let Ok(library) = opened {
            for domain in &library.manifest().domains {
                for (variant, wanted) in domain.variants.iter().zip(&bitstreams) {
                    let merge = library.bitstream(&domain.name, &variant.name).unwrap();
                    prop_assert!(merge.collect::<Result<Vec<u8>, _>>().as_ref() == Ok(wanted));
                }
            }
        }
        Ok(())
    });
    ran.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn wrong_bitstreams_are_not_packed() {
    let [first, second] = bitstreams();
    let mut broken = second.clone();
    broken[2000] ^= 1;
    let packed = |variants: &[(&str, &[u8])]| pack("aes", variants, Grain::Bit, &[], Phase::One);
    let error = packed(&[("one", &first), ("two", &broken)]).unwrap_err();
    assert!(
        matches!(error, LibraryError::Bitstream { ref variant, .. } if variant == "two"),
        "{error}"
    );
    assert!(matches!(
        packed(&[]).unwrap_err(),
        LibraryError::Skeleton { .. }
    ));

    let folder = tempfile::tempdir().unwrap();
    let twice = packed(&[("one", &first), ("one", &second)]).unwrap();
    let error = publish(folder.path(), 1, &[twice], None).unwrap_err();
    assert!(error.to_string().contains("one is there twice"), "{error}");
    let same = domain("aes", &[first, second]);
    let error = publish(folder.path(), 1, &[same.clone(), same], None).unwrap_err();
    assert!(error.to_string().contains("aes is there twice"), "{error}");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing is written"
    );
}
