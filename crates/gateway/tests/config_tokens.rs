//! Keys and certificates on PKCS#11 tokens, as the configuration names them. No module is loaded.

mod certificates;

use std::path::Path;

use certificates::folder;
use esplanade::config::{Diagnostics, Loaded, load_text};
use esplanade_ike::config::LocalMethod;

const ONE: &str = "one { path = /usr/lib/one.so }";

fn read(base: &Path, modules: &str, local: &str, token: &str) -> Result<Loaded, Diagnostics> {
    let text = format!(
        "gateway {{
          pkcs11 {{
            modules {{
              {modules}
            }}
          }}
        }}
        connections {{
          a {{
            remote_addrs = 192.0.2.1
            local {{
              id = moon.example.org
              {local}
            }}
            remote {{
              auth = psk
              id = sun.example.org
            }}
            children {{
              net {{
                remote_ts = 10.2.0.0/16
              }}
            }}
          }}
        }}
        secrets {{
          ike {{
            secret = 0123456789abcdef0123456789abcdef
          }}
          token1 {{
            {token}
          }}
        }}"
    );
    load_text(&base.join("esplanade.conf"), &text)
}

fn refusal(modules: &str, local: &str, token: &str) -> String {
    match read(Path::new("/nonexistent"), modules, local, token) {
        Err(diagnostics) => diagnostics.render(false),
        Ok(_) => panic!("{modules} {local} {token} is accepted"),
    }
}

#[test]
fn a_certificate_on_a_token_is_read_later() {
    let local = "cert1 { handle = 02:A7 }";
    let base = Path::new("/nonexistent");
    let loaded = read(base, ONE, local, "handle = 02a7\npin = 483920").unwrap();
    let LocalMethod::Signature(credentials) = &loaded.ike.connections[0].local.method else {
        panic!("it proves itself by a signature");
    };
    assert!(credentials.is_empty());
    let absent = &loaded.absent_certificates;
    assert_eq!(absent.len(), 1);
    assert_eq!(absent[0].handle, [2, 0xa7]);
    assert_eq!(absent[0].module, Path::new("/usr/lib/one.so"));
    assert!(!format!("{loaded:?}").contains("483920"));
}

#[test]
fn a_certificate_in_a_file_may_have_its_key_on_a_token() {
    let Some(folder) = folder() else { return };
    std::fs::remove_dir_all(folder.path().join("private")).unwrap();
    for local in ["certs = moon.pem", "cert1 { file = moon.pem }"] {
        let loaded = read(folder.path(), ONE, local, "handle = 01");
        let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
        let LocalMethod::Signature(credentials) = &loaded.ike.connections[0].local.method else {
            panic!("it proves itself by a signature");
        };
        assert_eq!(credentials.len(), 1, "{local}");
        assert!(loaded.absent_certificates.is_empty());
    }
}

#[test]
fn mistakes_are_named() {
    let cert = "cert1 { handle = 01 }";
    for (modules, local, token, says) in [
        ("", cert, "handle = 01", "no PKCS#11 module is configured"),
        (ONE, cert, "pin = 483920", "has no `handle`"),
        (ONE, "cert1 { slot = 1 }", "handle = 01", "has no `handle`"),
        (ONE, cert, "handle = moon", "is not a CKA_ID"),
        (
            ONE,
            cert,
            "handle = 01\nslot = first",
            "is not the number of a slot",
        ),
        (
            ONE,
            cert,
            "handle = 01\nmodule = two",
            "there is no PKCS#11 module `two`",
        ),
        (ONE, cert, "handle = 01\nfile = a", "has no key"),
        (
            "one { path = one.so }",
            cert,
            "handle = 01",
            "is no absolute path",
        ),
        ("one { name = one }", cert, "handle = 01", "has no `path`"),
        (
            "one { path = /lib/one.so }\ntwo { path = /lib/two.so }",
            cert,
            "handle = 01",
            "there are several modules",
        ),
    ] {
        let text = refusal(modules, local, token);
        assert!(text.contains(says), "{says}: {text}");
        assert!(!text.contains("483920"), "{text}");
    }
}
