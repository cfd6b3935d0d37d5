//! The package sources of this machine's apt, read to learn which mirrors it uses.
//!
//! Pure: text in, sources out. Both forms of apt's files are read, the one line and the deb822 form
//! (sources.list(5)).

/// One mirror and what is fetched from it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// The base URI.
    pub uri: String,
    /// The suites, `bookworm-security` for one.
    pub suites: Vec<String>,
    /// The keyring or key to check it with, as apt's `signed-by` takes it.
    pub signed_by: Option<String>,
}

/// The mirrors a Debian machine has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mirrors {
    /// Releases and backports.
    pub main: Source,
    /// Security updates.
    pub security: Source,
}

/// Code names and aliases of Debian's releases: how its mirrors are told from those of others.
const RELEASES: [&str; 11] = [
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "sid",
];

/// Picks Debian's mirrors from all sources.
pub fn mirrors(sources: &[Source]) -> Option<Mirrors> {
    let find = |wanted: &dyn Fn(&str) -> bool| {
        sources.iter().find(|source| source.suites.iter().any(|suite| wanted(suite))).cloned()
    };
    Some(Mirrors {
        main: find(&|suite| {
            let release = suite.split_once('-').map_or(suite, |(release, _)| release);
            RELEASES.contains(&release) && !is_security(suite)
        })?,
        security: find(&is_security)?,
    })
}

fn is_security(suite: &str) -> bool {
    suite.strip_suffix("-security").is_some_and(|release| RELEASES.contains(&release))
}

/// Reads a file in the one line form, `deb [options] uri suite components`.
pub fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t']) {
        return None;
    }
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let uri = words.next()?.to_owned();
    let suite = words.next()?.to_owned();
    let signed_by = options
        .split_whitespace()
        .filter_map(|option| option.split_once('='))
        .find(|(key, _)| key.eq_ignore_ascii_case("signed-by"))
        .map(|(_, value)| value.to_owned());
    Some(Source { uri, suites: vec![suite], signed_by })
}

/// Reads a file in deb822 form: stanzas of `Field: value` lines.
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields = Vec::new();
    // A blank line ends a stanza; one more makes sure the last ends, too.
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(stanza(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                let value: &mut String = value;
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    sources
}

fn stanza(fields: &[(String, String)]) -> Vec<Source> {
    let field =
        |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let words = |name: &str| field(name).unwrap_or_default().split_whitespace();
    let is_binary = words("types").any(|kind| kind == "deb");
    let is_enabled = !field("enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"));
    if !is_binary || !is_enabled {
        return Vec::new();
    }
    let suites: Vec<String> = words("suites").map(str::to_owned).collect();
    // A key may also be written out in the file, over many lines: of no use on one line.
    let signed_by = field("signed-by").filter(|value| value.starts_with('/')).map(str::to_owned);
    words("uris")
        .map(|uri| Source {
            uri: uri.to_owned(),
            suites: suites.clone(),
            signed_by: signed_by.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uri: &str, suites: &[&str], signed_by: Option<&str>) -> Source {
        Source {
            uri: uri.into(),
            suites: suites.iter().map(|&suite| suite.into()).collect(),
            signed_by: signed_by.map(str::to_owned),
        }
    }

    #[test]
    fn deb822_stanzas_are_read_without_comments_sources_and_disabled_ones() {
        let text = "\
Types: deb deb-src
# a comment
URIs: http://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/k.gpg

Types: deb-src
URIs: http://mirror.example/src
Suites: bookworm

Types: deb
Enabled: no
URIs: http://mirror.example/off
Suites: bookworm

types: deb
uris: http://a.example/s http://b.example/s
suites: bookworm-security
signed-by:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----";
        assert_eq!(
            parse_deb822(text),
            [
                source(
                    "http://mirror.example/debian",
                    &["bookworm", "bookworm-updates"],
                    Some("/usr/share/keyrings/k.gpg")
                ),
                source("http://a.example/s", &["bookworm-security"], None),
                source("http://b.example/s", &["bookworm-security"], None),
            ]
        );
    }

    #[test]
    fn one_line_sources_are_read_with_and_without_options() {
        let text = "\
# deb http://off.example/debian bookworm main
deb-src http://src.example/debian bookworm main
deb http://one.example/debian bookworm main contrib # why
deb [ arch=amd64 signed-by=/k.gpg ] http://two.example/s bookworm-security main
debris http://no.example bookworm main
deb http://short.example";
        assert_eq!(
            parse_list(text),
            [
                source("http://one.example/debian", &["bookworm"], None),
                source("http://two.example/s", &["bookworm-security"], Some("/k.gpg")),
            ]
        );
    }

    #[test]
    fn mirrors_are_told_apart_by_their_suites() {
        let node = source("http://node.example", &["nodistro"], None);
        let main = source("http://main.example", &["trixie-updates", "trixie"], None);
        let security = source("http://security.example", &["trixie-security"], None);
        let all = [node.clone(), security.clone(), main.clone()];
        assert_eq!(mirrors(&all), Some(Mirrors { main: main.clone(), security }));
        assert_eq!(mirrors(&[node, main]), None);
    }
}
