//! Calls every function with every wrong argument that can be detected.

use super::*;

const MATERIAL: [u8; 36] = [7; 36];

fn esp_key() -> *mut esplanade_esp_key {
    let mut key = std::ptr::null_mut();
    // SAFETY: all pointers are valid.
    let status = unsafe {
        esplanade_esp_key_new(
            c"AES_GCM_16_256".as_ptr(),
            1,
            MATERIAL.as_ptr(),
            36,
            &mut key,
        )
    };
    assert_eq!(status, ESPLANADE_OK);
    key
}

fn aead_key() -> *mut esplanade_aead_key {
    let mut key = std::ptr::null_mut();
    let algorithm = ESPLANADE_CHACHA20_POLY1305;
    // SAFETY: all pointers are valid.
    let status = unsafe { esplanade_aead_key_new(algorithm, MATERIAL.as_ptr(), 32, &mut key) };
    assert_eq!(status, ESPLANADE_OK);
    key
}

fn record(key: *const esplanade_aead_key, text: &mut [u8]) -> esplanade_record {
    let to = text.as_mut_ptr();
    esplanade_record {
        key,
        aad: std::ptr::null(),
        aad_len: 0,
        from: to,
        to,
        len: text.len(),
        nonce: [1; 12],
        tag: [0; 16],
        status: -1,
    }
}

#[test]
fn keys_survive_every_argument() {
    let null = std::ptr::null::<u8>();
    let mut esp = std::ptr::dangling_mut();
    let name = c"AES_GCM_16_256".as_ptr();
    let material = MATERIAL.as_ptr();
    for (name, material, len, expected) in [
        (null.cast(), material, 36, ESPLANADE_ARGUMENT),
        (name, null, 36, ESPLANADE_ARGUMENT),
        (name, material, usize::MAX, ESPLANADE_ARGUMENT),
        (name, null, 0, ESPLANADE_KEY),
        (name, material, 35, ESPLANADE_KEY),
        (c"".as_ptr(), material, 36, ESPLANADE_TRANSFORM),
        (c"\xff".as_ptr(), material, 36, ESPLANADE_TRANSFORM),
    ] {
        // SAFETY: all pointers are null or valid.
        let status = unsafe { esplanade_esp_key_new(name, 0, material, len, &mut esp) };
        assert_eq!(status, expected);
        assert!(expected == ESPLANADE_ARGUMENT || esp.is_null());
    }
    let mut aead = std::ptr::dangling_mut();
    for (algorithm, key, len, expected) in [
        (0, material, 16, ESPLANADE_ARGUMENT),
        (u32::MAX, material, 16, ESPLANADE_ARGUMENT),
        (1, null, 16, ESPLANADE_ARGUMENT),
        (1, material, 17, ESPLANADE_KEY),
        (1, [0; 16].as_ptr(), 16, ESPLANADE_KEY),
    ] {
        // SAFETY: all pointers are null or valid.
        let status = unsafe { esplanade_aead_key_new(algorithm, key, len, &mut aead) };
        assert_eq!(status, expected);
        assert!(aead.is_null());
    }
    // SAFETY: all pointers are null or valid.
    unsafe {
        let nowhere = esplanade_aead_key_new(1, material, 16, std::ptr::null_mut());
        assert_eq!(nowhere, ESPLANADE_ARGUMENT);
        let nowhere = esplanade_esp_key_new(name, 0, material, 36, std::ptr::null_mut());
        assert_eq!(nowhere, ESPLANADE_ARGUMENT);
        esplanade_esp_key_free(std::ptr::null_mut());
        esplanade_aead_key_free(std::ptr::null_mut());
    }
}

#[test]
fn packets_survive_every_argument() {
    let key = esp_key();
    let (mut a, mut b) = ([5u8; 64], [5u8; 64]);
    let packet = |key, bytes: *mut u8, len| esplanade_esp_packet {
        key,
        sequence: 9,
        bytes,
        len,
        status: -1,
    };
    let null = std::ptr::null_mut();
    // There is one good packet among others.
    let mut packets = [
        packet(key, a.as_mut_ptr(), 64),
        packet(std::ptr::null(), b.as_mut_ptr(), 64),
        packet(key, null, 64),
        packet(key, null, 0),
        packet(key, b.as_mut_ptr(), usize::MAX),
        packet(key, b.as_mut_ptr(), 63),
    ];
    let statuses = |packets: &[esplanade_esp_packet]| -> Vec<i32> {
        packets.iter().map(|packet| packet.status).collect()
    };
    // SAFETY: every pointer is null, refused or valid.
    unsafe {
        let status = esplanade_esp_seal(packets.as_mut_ptr(), 6);
        assert_eq!(status, ESPLANADE_ARGUMENT);
        let (argument, length) = (ESPLANADE_ARGUMENT, ESPLANADE_LENGTH);
        let expected = [ESPLANADE_OK, argument, argument, length, argument, length];
        assert_eq!(statuses(&packets), expected);
        assert_ne!(a[16..48], [5; 32]);
        assert_eq!(b, [5; 64]);
        assert_eq!(esplanade_esp_open(packets.as_mut_ptr(), 1), ESPLANADE_OK);
        assert_eq!(a[..48], [5; 48]);
        assert_eq!(
            esplanade_esp_open(packets.as_mut_ptr(), 1),
            ESPLANADE_AUTH_FAILED
        );
        assert_eq!(a[16..48], [0; 32]);

        let before = a;
        let overlapping = a.as_mut_ptr().add(32);
        let mut packets = [
            packet(key, a.as_mut_ptr(), 64),
            packet(key, overlapping, 32),
        ];
        assert_eq!(
            esplanade_esp_seal(packets.as_mut_ptr(), 2),
            ESPLANADE_OVERLAP
        );
        assert_eq!(statuses(&packets), [ESPLANADE_OVERLAP; 2]);
        assert_eq!(a, before);

        assert_eq!(esplanade_esp_seal(std::ptr::null_mut(), 0), ESPLANADE_OK);
        assert_eq!(
            esplanade_esp_seal(std::ptr::null_mut(), 3),
            ESPLANADE_ARGUMENT
        );
        let huge = esplanade_esp_seal(packets.as_mut_ptr(), usize::MAX);
        assert_eq!(huge, ESPLANADE_ARGUMENT);
        let unaligned = packets.as_mut_ptr().wrapping_byte_add(1);
        assert_eq!(esplanade_esp_open(unaligned, 1), ESPLANADE_ARGUMENT);
        esplanade_esp_key_free(key);
    }
}

#[test]
fn a_packet_in_the_array_of_packets_is_refused() {
    let key = esp_key();
    let mut packets = [esplanade_esp_packet {
        key,
        sequence: 1,
        bytes: std::ptr::null_mut(),
        len: 32,
        status: -1,
    }];
    packets[0].bytes = packets.as_mut_ptr().cast();
    // SAFETY: the call is refused.
    unsafe {
        assert_eq!(
            esplanade_esp_seal(packets.as_mut_ptr(), 1),
            ESPLANADE_OVERLAP
        );
        assert_eq!(packets[0].key, key.cast_const());
        esplanade_esp_key_free(key);
    }
}

#[test]
fn records_survive_every_argument() {
    let key = aead_key();
    let (mut a, mut b) = ([5u8; 40], [6u8; 40]);
    // SAFETY: every pointer is null, refused or valid.
    unsafe {
        let mut good = record(key, &mut a);
        assert_eq!(esplanade_records_seal(&mut good, 1), ESPLANADE_OK);
        assert_ne!(a, [5; 40]);
        // One record has separate buffers; an empty one is in front of it.
        let apart = esplanade_record {
            to: b.as_mut_ptr(),
            aad: std::ptr::null(),
            ..good
        };
        let empty = esplanade_record {
            from: std::ptr::null(),
            to: std::ptr::null_mut(),
            ..record(key, &mut [])
        };
        let mut records = [empty, apart];
        let status = esplanade_records_open(records.as_mut_ptr(), 2);
        assert_eq!(status, ESPLANADE_AUTH_FAILED, "the empty one has no tag");
        assert_eq!(records[1].status, ESPLANADE_OK);
        assert_eq!(b, [5; 40]);

        let aad = a.as_ptr();
        let into_aad = esplanade_record {
            aad,
            aad_len: 1,
            ..record(key, &mut a)
        };
        let mut far = [0u8; 60];
        let shifted = esplanade_record {
            from: far.as_ptr().add(10),
            len: 40,
            ..record(key, &mut far)
        };
        for mut overlapping in [into_aad, shifted] {
            assert_eq!(
                esplanade_records_seal(&mut overlapping, 1),
                ESPLANADE_OVERLAP
            );
        }
        let good = || record(key, &mut [0; 4]);
        for mut wrong in [
            esplanade_record {
                key: std::ptr::null(),
                ..good()
            },
            esplanade_record {
                aad_len: 1,
                ..good()
            },
            esplanade_record {
                from: std::ptr::null(),
                ..good()
            },
            esplanade_record {
                to: std::ptr::null_mut(),
                ..good()
            },
            esplanade_record {
                len: usize::MAX,
                ..good()
            },
        ] {
            assert_eq!(esplanade_records_open(&mut wrong, 1), ESPLANADE_ARGUMENT);
            assert_eq!(wrong.status, ESPLANADE_ARGUMENT);
        }
        assert_eq!(
            esplanade_records_open(std::ptr::null_mut(), 1),
            ESPLANADE_ARGUMENT
        );
        assert_eq!(
            esplanade_records_open(std::ptr::null_mut(), 0),
            ESPLANADE_OK
        );
        esplanade_aead_key_free(key);
    }
}

#[test]
fn every_status_has_a_text() {
    for status in (ESPLANADE_OK..=ESPLANADE_INTERNAL).chain([-1, i32::MAX]) {
        // SAFETY: the pointer is to a static string.
        let text = unsafe { CStr::from_ptr(esplanade_status_text(status)) };
        let unknown = text == c"unknown status";
        assert_eq!(
            unknown,
            !(ESPLANADE_OK..=ESPLANADE_INTERNAL).contains(&status)
        );
    }
    // SAFETY: the pointer is to a static string.
    let tier = unsafe { CStr::from_ptr(esplanade_tier()) };
    assert_eq!(tier.to_str(), Ok(Tier::current().name()));
}
