import './main.css';

const main = document.querySelector('main');

// Two routes of the history interface; the second one has a chunk, a style sheet and an image of its own.
async function route() {
  const report = location.pathname.match(/^\/reports\/(.+)$/);
  if (report) {
    const { show } = await import('./report.js');
    return `report ${report[1]}: ${await show(main, report[1])}`;
  }
  main.textContent = 'home';
  return `home: ${getComputedStyle(main).color}`;
}

// The page is complete when this image is, and so when the page has reported what it saw.
const held = new URLSearchParams(location.search).get('held');
if (held) {
  const end = new Image();
  end.src = `${held}/end`;
  document.body.append(end);
}

async function visit() {
  const seen = [await route()];
  history.pushState({}, '', '/');
  seen.push(await route());
  return seen.join(', ');
}

visit()
  .catch((error) => `failed: ${error}`)
  .then((seen) => {
    document.body.append(seen);
    if (held) fetch(`${held}/reported`, { mode: 'no-cors' });
  });
