//! Names of files with a hash of their content, as build tools write them by default.
//!
//! Who takes an ordinary name for one of them has browsers keep its content for a year, and who does not know one of them has browsers
//! ask again. So a name that people may write too counts only in a folder, or for a type, for which tools write such names.

/// Folders in which a build tool writes every name: Next, Astro, Nuxt and SvelteKit.
const GENERATED: [&[u8]; 4] = [
    b"/_next/static/",
    b"/_astro/",
    b"/_nuxt/",
    b"/_app/immutable/",
];

/// The folder of Vite, in which people put files too.
const ASSETS: &[u8] = b"/assets/";

/// Types of code. People write names such as `hero-Summer24`, but rarely for these.
const CODE: [&[u8]; 3] = [b"js", b"mjs", b"css"];

/// What goes between the hash and the type: `app.3f2a9c1b.js.map`, `main.8f2b1c9d.chunk.css`.
const BETWEEN: [&[u8]; 5] = [b".chunk", b".min", b".js", b".mjs", b".css"];

/// The characters of a hash of Vite, esbuild and Parcel.
const SHORT: usize = 8;

/// The characters of a hexadecimal hash behind a dash: Vite to its version 4, Next, webpack.
const HEX_BEHIND_DASH: [usize; 3] = [SHORT, 16, 20];

/// Behind a dot: Parcel and webpack, Angular, webpack, MD5, and the others that Hugo offers.
const HEX_BEHIND_DOT: [usize; 7] = [SHORT, 16, 20, 32, 64, 96, 128];

/// The characters of a name of webpack that is nothing but a hash.
const HEX_ALONE: usize = 20;

/// The minimum of characters of the hash of an image that Hugo has processed, and of a name of Turbopack.
const LONG_MIN: usize = 12;

/// Whether the name of the file at `path` contains a hash of its content, as Vite, webpack, esbuild, Parcel, Next, Astro and Hugo write it:
/// `/assets/index-DiwrgTda.js`, `app.3f2a9c1b.js`.
#[must_use]
pub fn is_hashed(path: &[u8]) -> bool {
    let name_at = path.iter().rposition(|&byte| byte == b'/');
    let (folder, name) = path.split_at(name_at.map_or(0, |at| at + 1));
    let Some((mut stem, kind)) = split_behind(name, b".") else {
        return false;
    };
    // No tool gives a page such a name, because it is linked from elsewhere.
    if [&b"html"[..], b"htm"].contains(&kind) {
        return false;
    }
    let is_code = CODE.contains(&kind) || kind == b"map";
    while let Some(rest) = BETWEEN.iter().find_map(|end| stem.strip_suffix(*end)) {
        stem = rest;
    }
    if GENERATED
        .iter()
        .any(|generated| contains(folder, generated))
    {
        return is_generated(stem);
    }
    let in_assets = contains(folder, ASSETS);
    let is_word = |hash: &[u8]| match (in_assets, is_code) {
        (true, true) => false,
        (false, false) => has_words(hash) && turns(hash) <= 2,
        _ => has_words(hash) && turns(hash) <= 1,
    };
    is_hex(stem, is_code) || is_base32(stem, is_code) || is_base64(stem, is_word)
}

/// In a folder with names of a tool: whether one that has a hash is this one. A name without one is that of a list of the others.
fn is_generated(stem: &[u8]) -> bool {
    // Astro: an image with its options, `hero.DMrTgcGi_Z1QmLqv.webp`. Next: a font that is preloaded.
    let before_options = split_behind(stem, b"_").filter(|(_, options)| options.len() < SHORT);
    let before_use = [&b"-s.p"[..], b"-s"]
        .iter()
        .find_map(|end| stem.strip_suffix(*end));
    let stems = [Some(stem), before_options.map(|(stem, _)| stem), before_use];
    stems.into_iter().flatten().any(|stem| {
        let is_short = stem
            .split_last_chunk::<SHORT>()
            .is_some_and(|(start, hash)| {
                hash.iter().all(is_of_base64)
                    && start.last().is_none_or(|byte| b".-".contains(byte))
            });
        let is_of_turbopack =
            |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'~');
        let is_long = stem.len() >= LONG_MIN && has_digit(stem) && stem.iter().all(is_of_turbopack);
        is_short || is_long
    })
}

/// Whether a stem ends in a hexadecimal hash, or is one, or is that of an image of Hugo.
fn is_hex(stem: &[u8], is_code: bool) -> bool {
    let looks_hex = |hash: &[u8]| {
        hash.iter().all(is_hex_digit) && has_digit(hash) && hash.iter().any(u8::is_ascii_alphabetic)
    };
    let Some((_, hash)) = split_behind(stem, b".-") else {
        return stem.len() == HEX_ALONE && looks_hex(stem) || is_image_of_hugo(stem);
    };
    let lengths: &[usize] = match stem[stem.len() - hash.len() - 1] {
        b'.' => &HEX_BEHIND_DOT,
        _ => &HEX_BEHIND_DASH,
    };
    let may_be_word = !is_code && hash.len() == SHORT && is_word_with_number(hash);
    lengths.contains(&hash.len()) && looks_hex(hash) && !may_be_word || is_image_of_hugo(stem)
}

/// `sunset_hu59e56ffff1bc1d8d122b1403d34e039f_90587_400x200_fill_q75_box.jpg`, and from newer versions `sunset_hu_3f2a9c1b5d6e7f80.jpg`.
fn is_image_of_hugo(stem: &[u8]) -> bool {
    const MARK: &[u8] = b"_hu";
    let places = stem.windows(MARK.len()).enumerate();
    let mut marks = places.filter(|(at, mark)| *at > 0 && *mark == MARK);
    marks.any(|(at, _)| {
        let rest = &stem[at + MARK.len()..];
        let rest = rest.strip_prefix(b"_").unwrap_or(rest);
        let hash = rest.iter().take_while(|byte| is_hex_digit(byte)).count();
        hash >= LONG_MIN && matches!(rest.get(hash), None | Some(b'_'))
    })
}

/// Whether a stem ends in a hash of esbuild, `chunk-VB5XWYP2`.
fn is_base32(stem: &[u8], is_code: bool) -> bool {
    let Some((start, hash)) = stem.split_last_chunk::<SHORT>() else {
        return false;
    };
    let is_of_base32 = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b'2'..=b'7');
    start.len() > 1
        && start.ends_with(b"-")
        && hash.iter().all(is_of_base32)
        && hash.iter().any(u8::is_ascii_uppercase)
        && (is_code || has_digit(hash) && !is_word_with_number(hash))
}

/// Whether a stem ends in a hash of Vite, which is not what people write.
fn is_base64(stem: &[u8], is_word: impl FnOnce(&[u8]) -> bool) -> bool {
    let Some((start, hash)) = stem.split_last_chunk::<SHORT>() else {
        return false;
    };
    start.len() > 1
        && start.last().is_some_and(|byte| b".-".contains(byte))
        && hash.iter().all(is_of_base64)
        && hash.iter().any(u8::is_ascii_lowercase)
        && hash.iter().any(u8::is_ascii_uppercase)
        && !is_word(hash)
}

/// Whether it can be taken apart into words, which may begin with a capital, abbreviations in capitals, and numbers. `DLtejq40` cannot: no
/// abbreviation has one letter.
fn has_words(hash: &[u8]) -> bool {
    let mut rest = hash;
    while !rest.is_empty() {
        let capitals = rest
            .iter()
            .take_while(|byte| byte.is_ascii_uppercase())
            .count();
        let small = rest[capitals..]
            .iter()
            .take_while(|byte| byte.is_ascii_lowercase())
            .count();
        if capitals == 2 && small > 0 {
            return false;
        }
        rest = &rest[(capitals + small).max(1)..];
    }
    true
}

/// How often a word begins behind another one, a number or a dash. Names of people have few of them: `Get-Here`, `iPhone15`.
fn turns(hash: &[u8]) -> usize {
    let is_turn = |pair: &&[u8]| match (pair[0], pair[1]) {
        (b'a'..=b'z', b'A'..=b'Z') => true,
        (b'0'..=b'9', next) => next.is_ascii_alphabetic(),
        (b'-' | b'_', next) => next.is_ascii_alphanumeric(),
        _ => false,
    };
    hash.windows(2).filter(is_turn).count()
}

/// Whether all digits go before all letters or behind them: `facade22`, `2024face`.
fn is_word_with_number(hash: &[u8]) -> bool {
    let changes = |pair: &&[u8]| pair[0].is_ascii_digit() != pair[1].is_ascii_digit();
    hash.windows(2).filter(changes).count() == 1
}

/// What goes before and behind the last of `separators`; `None` if nothing goes before it.
fn split_behind<'n>(name: &'n [u8], separators: &[u8]) -> Option<(&'n [u8], &'n [u8])> {
    let at = name.iter().rposition(|byte| separators.contains(byte))?;
    (at > 0).then(|| (&name[..at], &name[at + 1..]))
}

fn contains(folder: &[u8], part: &[u8]) -> bool {
    folder.windows(part.len()).any(|window| window == part)
}

fn has_digit(hash: &[u8]) -> bool {
    hash.iter().any(u8::is_ascii_digit)
}

fn is_hex_digit(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn is_of_base64(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that tools have written.
    const HASHED: &[(&str, &[&str])] = &[
        (
            "Vite",
            &[
                "/assets/index-DiwrgTda.js",
                "/assets/index-DiwrgTda.js.map",
                "/app/assets/index-legacy-B8VbGEfq.js",
                "/assets/picture-DY2MOy_p.svg",
                "/assets/report-DLtejq40.svg",
                "/assets/index-a1-bC2dE.js",
                "/assets/index--XkSd_aB.css",
                "/assets/index.3f2a9c1b.js",
                "/assets/vendor-3f2a9c1b.js",
            ],
        ),
        (
            "webpack",
            &[
                "/main.8f2b1c9d.chunk.css",
                "/static/js/main.8f2b1c9d.js",
                "/static/js/787.8f2b1c9d.chunk.js.map",
                "/static/media/logo.6ce24c58023cc2f8fd88fe9d219db6c6.svg",
                "/main.0a1b2c3d4e5f60718293.js",
                "/app-0a1b2c3d4e5f60718293.js",
                "/0a1b2c3d4e5f60718293.woff2",
                "/main.3f2a9c1b5d6e7f80.js",
            ],
        ),
        (
            "esbuild",
            &[
                "/app-5NJ4VQ6A.js",
                "/chunk-VKMPTQXB.js",
                "/styles-5INURTSO.css",
                "/logo-5NJ4VQ6A.png",
            ],
        ),
        (
            "Parcel",
            &[
                "/index.3f2a9c1b.js",
                "/index.3f2a9c1b.css.map",
                "/a.b.3f2a9c1b.png",
            ],
        ),
        (
            "Next",
            &[
                "/_next/static/chunks/main-app-0ee73e98628876d3.js",
                "/_next/static/chunks/pages/_app-7371eef299aa9dbf.js",
                "/_next/static/css/ded6b86ab9cc0a1f.css",
                "/_next/static/media/a34f9d1faa5f3315-s.p.woff2",
                "/_next/static/media/logo.1b2c3d4e.svg",
                "/_next/static/chunks/171mb27t57vc..css",
            ],
        ),
        (
            "Astro",
            &[
                "/_astro/index.DiwrgTda.css",
                "/_astro/hero.DMrTgcGi_Z1QmLqv.webp",
                "/_astro/hero.DMrTgcGi.png",
                "/_astro/client.3f2a9c1b.js",
            ],
        ),
        (
            "Hugo",
            &[
                "/css/main.min.59e56ffff1bc1d8d122b1403d34e039f59e56ffff1bc1d8d122b1403d34e039f.css",
                "/js/app.59e56ffff1bc1d8d122b1403d34e039f.js",
                "/a/sunset_hu59e56ffff1bc1d8d122b1403d34e039f_90587_400x200_fill_q75_box_center.jpg",
                "/a/sunset_hu_3f2a9c1b5d6e7f80.jpg",
            ],
        ),
        (
            "SvelteKit, Nuxt",
            &[
                "/_app/immutable/entry/start.DiwrgTda.js",
                "/_app/immutable/chunks/DiwrgTda.js",
                "/_nuxt/DiwrgTda.js",
            ],
        ),
    ];

    /// Names that people write.
    const ORDINARY: &[&str] = &[
        "/",
        "/index.html",
        "/news-january2024.html",
        "/hero-background2.jpg",
        "/assets/hero-background2.jpg",
        "/assets/photo-summer24.jpg",
        "/assets/photo-Summer24.jpg",
        "/assets/Team-JohnDoes.jpg",
        "/assets/case-iPhone15.jpg",
        "/assets/case-PDFGuide.pdf",
        "/js/app-V2Widget.js",
        "/photo-2ndFloor.jpg",
        "/assets/photo-Page1of3.jpg",
        "/assets/IMG-20240713.jpg",
        "/assets/DSC_1234.jpg",
        "/assets/logo.svg",
        "/assets/index.js",
        "/report-20240101.pdf",
        "/report-2024face.pdf",
        "/hero-facade22.jpg",
        "/photo-2024-05b.jpg",
        "/doc-550e-84a0.pdf",
        "/files/f47ac10b-58cc-4372-a567-0e02b2c3d479.pdf",
        "/files/6ce24c58023cc2f8fd88fe9d219db6c6.jpg",
        "/avatars/a34f9d1faa5f3315.png",
        "/how-to-Get-Here.html",
        "/how-to-Get-Here.jpg",
        "/page-a1b2c3d4.html",
        "/3f2a9c1b.js",
        "/a1-bC2dE.js",
        "/jquery-minified.js",
        "/jquery-DropDown.js",
        "/js/app-MyWidget.js",
        "/app.min.js",
        "/bootstrap.bundle.min.js",
        "/JavaDocs.html",
        "/guide-JavaDocs.pdf",
        "/doc-OVERVIEW.pdf",
        "/PHOTO-IMAGE234.jpg",
        "/a.document.html",
        "/3f2a9c1b/index",
        "/v-1.2.3.js",
        "/hu_3f2a9c1b5d6e7f80.jpg",
        "/thumb_human.jpg",
        "/_nuxt/builds/latest.json",
        "/_next/static/chunks/main.js",
    ];

    #[test]
    fn names_of_tools_and_of_people() {
        for (tool, names) in HASHED {
            for name in *names {
                assert!(is_hashed(name.as_bytes()), "{tool}: {name}");
            }
        }
        for name in ORDINARY {
            assert!(!is_hashed(name.as_bytes()), "{name}");
        }
    }
}
