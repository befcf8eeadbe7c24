import './report.css';
import drawing from './report.svg';

export async function show(main, number) {
  main.innerHTML = `<h1>report ${number}</h1><img src="${drawing}">`;
  const image = main.querySelector('img');
  await image.decode();
  return `${image.width}x${image.height} ${getComputedStyle(main.querySelector('h1')).color}`;
}
