//! The dashboard, the alerts and the recording rules name only what is exported, and each alert
//! leads to a runbook.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic as the tests do")]

mod promql;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use lazyfree::signal::Signal;
use promql::{Known, Labels};
use serde::Deserialize;
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "name")]
    _name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    #[serde(rename = "for")]
    _for: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

fn rules(path: &str) -> Vec<Rule> {
    let file: RuleFile = serde_saphyr::from_str(&read(path)).unwrap();
    file.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// What is exported, and what the recording rules make of it.
fn known() -> Known {
    let mut known = Known::exported();
    for rule in rules("dashboards/rules.yaml") {
        let name = rule.record.expect("rules.yaml only records");
        let labels = known.labels(&rule.expr).unwrap_or_else(|error| panic!("{name}: {error}"));
        known.record(&name, labels);
    }
    known
}

/// The names in `{{ $labels.name }}`, or in a legend's `{{name}}`.
fn placeholders(text: &str, prefix: &str) -> Labels {
    let inside = text.split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
    inside
        .filter_map(|(inside, _)| inside.trim().strip_prefix(prefix))
        .map(|name| name.split_whitespace().next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn recording_rules_are_named_for_what_they_keep() {
    let known = known();
    let rules = rules("dashboards/rules.yaml");
    assert!(!rules.is_empty());
    for rule in rules {
        let name = rule.record.unwrap();
        let labels = known.labels(&rule.expr).unwrap();
        // level:metric:operation, where the level says which labels are kept.
        assert!(name.starts_with("instance:lazyfree_") && name.ends_with("rate5m"), "{name}");
        assert_eq!(labels, ["instance", "job"].map(str::to_owned).into(), "{name}");
    }
}

#[test]
fn alerts_name_what_exists_and_lead_to_a_runbook() {
    let known = known();
    let mut runbooks = BTreeSet::new();
    let mut names = BTreeSet::new();
    for rule in rules("dashboards/alerts.yaml") {
        let name = rule.alert.expect("alerts.yaml only alerts");
        assert!(name.starts_with("Lazyfree") && names.insert(name.clone()), "{name}");
        let labels = known.labels(&rule.expr).unwrap_or_else(|error| panic!("{name}: {error}"));
        let severity = &rule.labels["severity"];
        assert!(["info", "warning", "critical"].contains(&severity.as_str()), "{name}: {severity}");
        for annotation in ["summary", "description"] {
            let text = &rule.annotations[annotation];
            let used = placeholders(text, "$labels.");
            assert!(used.is_subset(&labels), "{name}: {used:?} are not all in {labels:?}");
            assert!(text.ends_with('.'), "{name}: {text}");
        }
        let runbook = &rule.annotations["runbook_url"];
        let commands = read(runbook);
        let command = commands.lines().find(|line| line.starts_with("    "));
        assert!(
            command.is_some_and(|line| line.trim().starts_with("lazyfree ")),
            "{runbook} doesn't start with a command to run"
        );
        assert!(commands.contains(&name), "{runbook} doesn't mention {name}");
        runbooks.insert(repository().join(runbook));
    }
    let written: BTreeSet<_> = fs::read_dir(repository().join("docs/runbooks"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(written, runbooks, "each runbook belongs to an alert");
}

fn dashboard() -> Value {
    serde_json::from_str(&read("dashboards/lazyfree.json")).unwrap()
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels.filter(|panel| panel["type"] != "row").collect()
}

/// Title, query and legend of every target.
fn targets(dashboard: &Value) -> Vec<(&str, &str, &str)> {
    let mut targets = Vec::new();
    for panel in panels(dashboard) {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let text = |key: &str| target[key].as_str().unwrap();
            targets.push((title, text("expr"), text("legendFormat")));
        }
    }
    targets
}

#[test]
fn the_dashboard_names_what_exists() {
    let mut known = known();
    known.must_select_target = true;
    let dashboard = dashboard();
    for (title, query, legend) in targets(&dashboard) {
        assert!(
            !query.contains('[')
                || query.contains("[$__rate_interval]")
                || query.contains("[$__range]"),
            "{title}: a fixed range doesn't follow the zoom: {query}"
        );
        let query = query.replace("$__rate_interval", "5m").replace("$__range", "1h");
        let labels =
            known.labels(&query).unwrap_or_else(|error| panic!("{title}: {error}: {query}"));
        let used = placeholders(legend, "");
        let used: Labels =
            used.into_iter().filter(|name| !(name == "le" && labels.contains("le"))).collect();
        assert!(used.is_subset(&labels), "{title}: {used:?} are not all in {labels:?}");
    }
}

#[test]
fn the_dashboard_shows_every_signal() {
    let dashboard = dashboard();
    let targets = targets(&dashboard);
    for signal in Signal::ALL {
        let family = signal.info().family;
        assert!(targets.iter().any(|(_, query, _)| query.contains(family)), "{family}");
    }
}

#[test]
fn panels_say_what_they_show_and_lie_beside_each_other() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is taken");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} is too wide");
        for y in at("y")..at("y") + at("h") {
            for x in at("x")..at("x") + at("w") {
                assert!(cells.insert((x, y)), "{title} covers another panel");
            }
        }
    }
    for panel in panels(&dashboard) {
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{panel}");
    }
}

#[test]
fn variables_are_filled_from_what_is_exported() {
    let known = known();
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables.iter().map(|variable| &variable["name"]).collect();
    assert_eq!(names, ["datasource", "job", "instance"]);
    for variable in &variables[1..] {
        let query = variable["query"]["query"].as_str().unwrap();
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) = inside.and_then(|inside| inside.rsplit_once(", ")).unwrap();
        assert!(known.labels(selector).unwrap().contains(label), "{query}");
        assert_eq!(variable["name"], label);
    }
}
