(() => {
  const table = document.querySelector('table'), body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const two = number => String(number).padStart(2, '0');
  for (const time of document.querySelectorAll('time')) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    time.textContent = at.getFullYear() + '-' + two(at.getMonth() + 1) + '-' + two(at.getDate()) +
      ' ' + two(at.getHours()) + ':' + two(at.getMinutes());
  }
  heads[2].textContent = 'Modified';
  const rows = [...body.rows], parent = rows.filter(row => row.cells[0].firstChild.getAttribute('href') == '../');
  const items = rows.slice(parent.length).map((row, index) => {
    const [name, size, time] = row.cells, link = name.firstChild;
    return {
      row, index, text: link.textContent, folder: link.getAttribute('href').endsWith('/'),
      size: size.dataset.sortValue ? +size.dataset.sortValue : -1,
      time: time.firstElementChild ? Date.parse(time.firstElementChild.dateTime) : -Infinity,
    };
  });
  const names = new Intl.Collator(undefined, {numeric: true, sensitivity: 'base'});
  const byName = table.dataset.unsorted === undefined ? (a, b) => a.index - b.index
    : (a, b) => b.folder - a.folder || names.compare(a.text, b.text);
  const orders = [byName, (a, b) => a.size - b.size || byName(a, b), (a, b) => a.time - b.time || byName(a, b)];
  const sort = (column, direction) => {
    heads.forEach((head, index) => index == column
      ? head.setAttribute('aria-sort', direction > 0 ? 'ascending' : 'descending')
      : head.removeAttribute('aria-sort'));
    items.sort((a, b) => direction * orders[column](a, b));
    body.append(...parent);
    const part = document.createDocumentFragment();
    for (const item of items) part.append(item.row);
    body.append(part);
  };
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.onclick = () => {
      const first = column ? -1 : 1, was = head.getAttribute('aria-sort');
      sort(column, !was ? first : was == 'ascending' ? -1 : 1);
    };
  });
  if (table.dataset.unsorted !== undefined) sort(0, 1);
  else heads[0].setAttribute('aria-sort', 'ascending');
})();
